"""Generalized linear models of scikit-learn that forget: the exact estimator of windvane's policies.

:class:`WeightedGLMClassifier` and :class:`WeightedGLMRegressor` minimise, over the rows s that they have learned,

    sum_s gamma^(age of s) w_s (B(z_s) - y_s z_s) + alpha ||(coef, intercept / intercept_scaling)||^2 / 2,
    z_s = <x_s, coef> + intercept,    B' the mean of the link.

Rows are in the order of time, and a row's age is the number of rows since. w_s is its ``sample_weight``. The solution
is the weighted maximum-likelihood estimate of :mod:`windvane.estimation.mle`. With the identity link it is ridge
regression, which needs no stored rows. Without forgetting, the classifier is scikit-learn's
``LogisticRegression(C=1 / alpha)``, and the regressor is ``Ridge(alpha)`` or ``PoissonRegressor(alpha / sum(w))``; only
their intercept has no penalty.

This module needs the package scikit-learn: ``pip install 'windvane[sklearn]'``.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_number, check_positive
from windvane.errors import ArgumentError
from windvane.estimation import Discount, Estimator, MaximumLikelihoodEstimator, Never, RidgeEstimator
from windvane.kernels.scoring import LARGEST_REWARD, LARGEST_WEIGHT
from windvane.links import Link, get_link
from windvane.state import check, save, swap

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    hint = f"{error.name} is missing; install it with: pip install 'windvane[sklearn]'"
    raise ModuleNotFoundError(hint, name=error.name) from None

# The estimators bound rows by L and parameters by S. Here S only decides when old rows are dropped, so it is chosen
# such that S L is this constant: the regularisation then does not depend on the longest row.
REACH = 1.0
TOLERANCE = 1e-9  # bound on the effect of rows that are dropped, or represented by an expansion, on the parameter
IMPRECISE = 0.01  # a larger bound on the error of <x, coef> for the longest row is worth a warning
GROWTH = 2.0  # a row that is longer than all before makes room for longer ones


class _WeightedGLM(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What the classifier and the regressor share: the settings, the estimator and its rows.

    A lane of the estimator is one model; the lanes have the same rows and different targets.
    """

    def _choose_discount(self) -> float:
        """Return the factor with which the weight of a row shrinks per row."""
        if self.half_life is None:
            return 1.0 if self.gamma is None else check_number("gamma", self.gamma, "in (0, 1]", lambda g: 0 < g <= 1)
        if self.gamma is not None:
            raise ArgumentError("gamma", self.gamma, "omitted when `half_life` is given")
        return math.exp(-math.log(2.0) / check_positive("half_life", self.half_life))

    def _build_estimator(self, link: Link, dim: int, lanes: int, longest: float) -> Estimator:
        """Return an estimator for rows with a norm of at most ``longest``, with its ridge equal to ``alpha``."""
        gamma = self._choose_discount()
        settings: dict[str, Any] = {
            "forgetting": Never() if gamma == 1.0 else Discount(gamma), "S": REACH / longest, "L": longest,
            "lam": check_positive("alpha", self.alpha) / link.constants(REACH, 1.0).c_mu, "lanes": lanes,
        }  # fmt: skip
        if link.name == "identity":
            return RidgeEstimator(dim, **settings)
        return MaximumLikelihoodEstimator(dim, link, **settings, tolerance=TOLERANCE)

    def _add_intercept(self, X: Array) -> Array:
        """Return rows as the estimator takes them."""
        if not self.fit_intercept:
            return np.ascontiguousarray(X)
        scaling = check_positive("intercept_scaling", self.intercept_scaling)
        return np.hstack([X, np.full((len(X), 1), scaling)])

    def _make_room(self, link: Link, rows: Array, lanes: int, *, is_new: bool) -> None:
        """Set the estimator to one that accepts rows of this length. It keeps what it has learned unless ``is_new``."""
        longest, dim = float(np.linalg.norm(rows, axis=1).max()), rows.shape[1]
        if is_new:
            self._estimator = self._build_estimator(link, dim, lanes, longest or 1.0)
            self._link, self._learned_with = link, self.get_params()
        elif self._learned_with != self.get_params():
            raise ValueError("partial_fit needs the settings of the calls before; call fit after a change of settings")
        elif longest > self._estimator.L:
            wider = self._build_estimator(link, dim, lanes, GROWTH * longest)
            swap(check(wider, save(self._estimator), is_own=True))
            self._estimator = wider

    def _learn(self, rows: Array, targets: Array, weights: Array) -> None:
        """Learn rows with their targets, [rows, lanes], in this order, and update the coefficients."""
        estimator, lanes = self._estimator, targets.shape[1]
        ages, everywhere, is_forgetting = (
            np.zeros(lanes),
            np.ones(lanes, dtype=bool),
            bool((estimator.gamma < 1.0).any()),
        )
        points = np.repeat(rows[:, None], lanes, axis=1)
        for point, target, weight in zip(points, targets, np.repeat(weights[:, None], lanes, axis=1), strict=True):
            if is_forgetting:
                estimator.age(1.0)
            estimator.absorb(point, target, ages, weight, everywhere)
        theta = estimator.solve()
        if isinstance(estimator, MaximumLikelihoodEstimator) and (estimator.root_error * estimator.L).max() > IMPRECISE:
            text = "the coefficients are imprecise, because rows of X are of very different lengths; scale its columns"
            warnings.warn(text, ConvergenceWarning, stacklevel=4)
        self._coefficients, self._intercepts = theta, np.zeros(lanes)
        if self.fit_intercept:
            self._coefficients, self._intercepts = theta[:, :-1].copy(), self.intercept_scaling * theta[:, -1]

    def _check_weights(self, sample_weight: npt.ArrayLike | None, count: int, *, is_new: bool) -> Array:
        if sample_weight is None:
            return np.ones(count)
        weights = check_array(
            sample_weight, ensure_2d=False, dtype=np.float64, ensure_min_samples=0, input_name="sample_weight"
        )
        if weights.shape != (count,):
            raise ValueError(f"sample_weight must have shape ({count},), got {weights.shape}")
        if not ((weights >= 0) & (weights <= LARGEST_WEIGHT)).all():
            raise ValueError(f"sample_weight must be between 0 and {LARGEST_WEIGHT:g}")
        if is_new and not weights.any():
            raise ValueError("sample_weight must not be zero for all rows")
        return np.asarray(weights)

    def _linear_predictor(self, X: Any) -> Array:
        """Return <x, coef> + intercept of each row and model, [rows, lanes]."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self._coefficients.T + self._intercepts)


class WeightedGLMClassifier(ClassifierMixin, _WeightedGLM):  # type: ignore[misc]
    """Logistic regression with exponentially decaying weights: recent rows count more.

    More than two classes are fitted one versus the rest, and the probabilities are normalised.

    Parameters
    ----------
    half_life : float, optional
        Number of rows after which a row counts half. None: rows are never forgotten.
    gamma : float, optional
        The factor of a row's weight with every row after it, in (0, 1]; instead of ``half_life``.
    alpha : float
        Factor of the penalty alpha ||coef||^2 / 2, the inverse of scikit-learn's ``C``.
    fit_intercept : bool
        Whether the model has an intercept.
    intercept_scaling : float
        The intercept is penalised as if it were smaller by this factor, as in liblinear.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    coef_, intercept_ : ndarray
        The coefficients, [1, features] and [1] with two classes, otherwise a row per class.
    n_features_in_ : int
        The number of features.

    Notes
    -----
    ``partial_fit`` continues after the rows that were learned before, and ``fit`` starts anew: ``fit`` of all rows
    equals ``partial_fit`` of the same rows in any batches. Rows are stored until their weight no longer matters, about
    fifty half-lives; without forgetting, all of them.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.tile([[0.0], [1.0]], (100, 1))
    >>> y = np.repeat([[0, 1], [1, 0]], [50, 50], axis=0).ravel()  # the world turns after half of the rows
    >>> WeightedGLMClassifier(half_life=10).fit(X, y).predict([[0.0], [1.0]])
    array([1, 0])
    """

    classes_: npt.NDArray[Any]

    def __init__(
        self,
        half_life: float | None = None,
        *,
        gamma: float | None = None,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 10.0,
    ) -> None:
        self.half_life, self.gamma, self.alpha = half_life, gamma, alpha
        self.fit_intercept, self.intercept_scaling = fit_intercept, intercept_scaling

    def fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn rows in the order of time, and nothing else.

        Parameters
        ----------
        X, y
            The rows and their classes, oldest first.
        sample_weight
            How many equal rows each row counts as. It shrinks as the row ages.
        """
        return self._fit(X, y, sample_weight, None, is_new=True)

    def partial_fit(
        self, X: Any, y: Any, classes: npt.ArrayLike | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> Self:
        """Learn more rows, which are newer than those before.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        classes
            All classes that will occur. Required in the first call.
        """
        is_new = not hasattr(self, "classes_")
        if is_new and classes is None:
            raise ValueError("classes must be passed in the first call to partial_fit")
        return self._fit(X, y, sample_weight, classes, is_new=is_new)

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any, *, is_new: bool) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=is_new)
        check_classification_targets(y)
        known = np.unique(y if classes is None else classes) if is_new else self.classes_
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes={classes!r} differs from the classes of the first call, {known!r}")
        if not np.isin(y, known).all():
            raise ValueError(f"y has labels that are not among the classes {known!r}")
        if len(known) < 2:
            raise ValueError(f"{type(self).__name__} needs rows of at least two classes, got one class")
        weights, rows = self._check_weights(sample_weight, len(X), is_new=is_new), self._add_intercept(X)
        labels = known[1:] if len(known) == 2 else known
        self._make_room(get_link("logistic"), rows, len(labels), is_new=is_new)
        self.classes_ = known
        self._learn(rows, (y[:, None] == labels).astype(float), weights)
        self.coef_, self.intercept_ = self._coefficients, self._intercepts
        return self

    def decision_function(self, X: Any) -> Array:
        """Return <x, coef> + intercept: one number per row with two classes, otherwise one per class."""
        scores = self._linear_predictor(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, [rows, classes]."""
        scores = self._linear_predictor(X)
        means = self._link.mean(scores)
        if len(self.classes_) == 2:
            return np.hstack([1.0 - means, means])
        return np.asarray(means / means.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each row."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if len(self.classes_) == 2 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])


class WeightedGLMRegressor(RegressorMixin, _WeightedGLM):  # type: ignore[misc]
    """Ridge or Poisson regression with exponentially decaying weights: recent rows count more.

    Parameters
    ----------
    half_life, gamma, alpha, fit_intercept, intercept_scaling
        As in :class:`WeightedGLMClassifier`.
    link : str
        "identity" for least squares, or "poisson" for counts, whose mean is the exponential of a linear function.

    Attributes
    ----------
    coef_ : ndarray
        The coefficients, [features].
    intercept_ : float
        The intercept.
    n_features_in_ : int
        The number of features.

    Notes
    -----
    As in :class:`WeightedGLMClassifier`. The identity link stores no rows. With the Poisson link, the bound on the
    effect of dropped rows assumes means of moderate size (see :mod:`windvane.estimation.mle`).

    Examples
    --------
    >>> import numpy as np
    >>> y = np.repeat([1.0, 5.0], 50)  # a level that jumps
    >>> WeightedGLMRegressor(half_life=5).fit(np.zeros((100, 1)), y).predict([[0.0]]).round(1)
    array([5.])
    """

    def __init__(
        self,
        half_life: float | None = None,
        *,
        gamma: float | None = None,
        alpha: float = 1.0,
        link: str = "identity",
        fit_intercept: bool = True,
        intercept_scaling: float = 10.0,
    ) -> None:
        self.half_life, self.gamma, self.alpha, self.link = half_life, gamma, alpha, link
        self.fit_intercept, self.intercept_scaling = fit_intercept, intercept_scaling

    def fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn rows in the order of time, and nothing else.

        Parameters
        ----------
        X, y
            The rows and their targets, oldest first.
        sample_weight
            How many equal rows each row counts as. It shrinks as the row ages.
        """
        return self._fit(X, y, sample_weight, is_new=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn more rows, which are newer than those before. Arguments are those of :meth:`fit`."""
        return self._fit(X, y, sample_weight, is_new=not hasattr(self, "coef_"))

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, is_new: bool) -> Self:
        link = self._get_link()
        X, y = validate_data(self, X, y, dtype=np.float64, reset=is_new, y_numeric=True)
        targets = np.asarray(y, dtype=float)
        least = 0.0 if link.name == "poisson" else -LARGEST_REWARD
        if not ((targets >= least) & (targets <= LARGEST_REWARD)).all():
            raise ValueError(f"y must be between {least:g} and {LARGEST_REWARD:g} with the {link.name} link")
        weights, rows = self._check_weights(sample_weight, len(X), is_new=is_new), self._add_intercept(X)
        self._make_room(link, rows, 1, is_new=is_new)
        self._learn(rows, targets[:, None], weights)
        self.coef_, self.intercept_ = self._coefficients[0], float(self._intercepts[0])
        return self

    def _get_link(self) -> Link:
        if self.link not in ("identity", "poisson"):
            raise ArgumentError("link", self.link, "one of identity, poisson")
        return get_link(self.link)

    def predict(self, X: Any) -> Array:
        """Return the mean of each row."""
        scores = self._linear_predictor(X)
        return self._link.mean(scores[:, 0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.link == "poisson"
        return tags
