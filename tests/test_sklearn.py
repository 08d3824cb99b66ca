"""The estimators of scikit-learn: its own checks, and its own models as the independent answer."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from windvane import ArgumentError
from windvane.sklearn import WeightedGLMClassifier, WeightedGLMRegressor

ROWS, FEATURES, HALF_LIFE = 300, 3, 40.0
FORGETTING = [{}, {"half_life": HALF_LIFE}, {"gamma": 0.99}]
EXACT = {"rtol": 1e-7, "atol": 1e-7}  # how far the solvers of scikit-learn may be from the optimum


def expected_failures(estimator: Any) -> dict[str, str]:
    """One check repeats rows instead of weighting them, which makes older rows older if the estimator forgets."""
    if estimator.half_life is None and estimator.gamma is None:
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "a repeated row takes two rounds, a row of weight 2 one"}


@parametrize_with_checks(
    [
        WeightedGLMClassifier(),
        WeightedGLMClassifier(fit_intercept=False),
        WeightedGLMClassifier(half_life=500),
        WeightedGLMRegressor(),
        WeightedGLMRegressor(link="poisson"),
        WeightedGLMRegressor(gamma=0.999),
        WeightedGLMRegressor(half_life=500, link="poisson"),
    ],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_has_no_objection(estimator: Any, check: Any) -> None:
    check(estimator)


def make_rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features that are far from standardised, their linear predictors, uniform numbers and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, FEATURES)) * [1.0, 3.0, 0.1] + [0.0, 2.0, 0.0]
    return X, X @ [0.8, -0.3, 2.0] + 0.5, rng.random(ROWS), rng.integers(0, 4, ROWS).astype(float)


def discounts(forgetting: dict[str, float]) -> np.ndarray:
    """The weights that equal forgetting, the last row's being 1."""
    gamma = forgetting.get("gamma", 0.5 ** (1 / forgetting.get("half_life", np.inf)))
    return gamma ** np.arange(ROWS)[::-1]


def with_intercept(X: np.ndarray, scaling: float) -> np.ndarray:
    return np.hstack([X, np.full((len(X), 1), scaling)])


@pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("forgetting", FORGETTING, ids=str)
class TestAgainstScikitLearn:
    """The same minimum, found by other code. The intercept is a column there, so that it has the same penalty."""

    def test_logistic_regression(self, forgetting: dict[str, float], alpha: float) -> None:
        X, z, draws, weights = make_rows()
        y = np.where(draws < 1 / (1 + np.exp(-z)), "yes", "no")
        ours = WeightedGLMClassifier(**forgetting, alpha=alpha, intercept_scaling=4.0).fit(X, y, weights)
        theirs = LogisticRegression(C=1 / alpha, fit_intercept=False, solver="newton-cholesky", tol=1e-12)
        theirs.fit(with_intercept(X, 4.0), y, weights * discounts(forgetting))
        np.testing.assert_allclose(ours.coef_, theirs.coef_[:, :-1], **EXACT)
        np.testing.assert_allclose(ours.intercept_, 4.0 * theirs.coef_[:, -1], **EXACT)
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(with_intercept(X, 4.0)), **EXACT)
        assert list(ours.classes_) == ["no", "yes"]
        np.testing.assert_array_equal(ours.predict(X), theirs.predict(with_intercept(X, 4.0)))

    def test_liblinear_has_the_same_intercept(self, forgetting: dict[str, float], alpha: float) -> None:
        X, z, draws, weights = make_rows(1)
        y = draws < 1 / (1 + np.exp(-z))
        ours = WeightedGLMClassifier(**forgetting, alpha=alpha, intercept_scaling=2.0).fit(X, y, weights)
        theirs = LogisticRegression(
            C=1 / alpha, intercept_scaling=2.0, solver="liblinear", tol=1e-10, max_iter=10_000, random_state=0
        )
        theirs.fit(X, y, weights * discounts(forgetting))
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-4, atol=1e-5)

    def test_ridge(self, forgetting: dict[str, float], alpha: float) -> None:
        X, z, draws, weights = make_rows(2)
        y = 100.0 + z + draws
        ours = WeightedGLMRegressor(**forgetting, alpha=alpha).fit(X, y, weights)
        theirs = Ridge(alpha, fit_intercept=False).fit(with_intercept(X, 10.0), y, weights * discounts(forgetting))
        np.testing.assert_allclose([*ours.coef_, ours.intercept_ / 10.0], theirs.coef_, **EXACT)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(with_intercept(X, 10.0)), **EXACT)

    def test_poisson_regression(self, forgetting: dict[str, float], alpha: float) -> None:
        X, z, _, weights = make_rows(3)
        y = np.random.default_rng(4).poisson(np.exp(z))
        ours = WeightedGLMRegressor(**forgetting, alpha=alpha, link="poisson").fit(X, y, weights)
        total = weights * discounts(forgetting)  # there, the loss is a mean
        theirs = PoissonRegressor(alpha=alpha / total.sum(), fit_intercept=False, solver="newton-cholesky", tol=1e-12)
        theirs.fit(with_intercept(X, 10.0), y, total)
        np.testing.assert_allclose([*ours.coef_, ours.intercept_ / 10.0], theirs.coef_, **EXACT)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(with_intercept(X, 10.0)), **EXACT)

    def test_more_than_two_classes_are_one_versus_the_rest(self, forgetting: dict[str, float], alpha: float) -> None:
        X, z, draws, _ = make_rows(5)
        y = np.digitize(z + draws, [-0.5, 1.0])
        ours = WeightedGLMClassifier(**forgetting, alpha=alpha, fit_intercept=False).fit(X, y)
        each = [
            LogisticRegression(C=1 / alpha, fit_intercept=False, solver="newton-cholesky", tol=1e-12)
            .fit(X, y == label, discounts(forgetting))
            for label in (0, 1, 2)
        ]  # fmt: skip
        np.testing.assert_allclose(ours.coef_, np.vstack([model.coef_ for model in each]), **EXACT)
        chances = np.stack([model.predict_proba(X)[:, 1] for model in each], axis=1)
        np.testing.assert_allclose(ours.predict_proba(X), chances / chances.sum(axis=1, keepdims=True), **EXACT)
        np.testing.assert_array_equal(ours.predict(X), chances.argmax(axis=1))
        assert ours.decision_function(X).shape == (ROWS, 3)


def test_with_a_large_scaling_the_intercept_has_no_penalty() -> None:
    X, z, draws, weights = make_rows(6)
    y = draws < 1 / (1 + np.exp(-z))
    theirs = LogisticRegression(solver="newton-cholesky", tol=1e-12).fit(X, y, weights)
    errors = [
        abs(WeightedGLMClassifier(intercept_scaling=scaling).fit(X, y, weights).intercept_ - theirs.intercept_)[0]
        for scaling in (1.0, 10.0, 1000.0)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6


@given(st.lists(st.integers(0, ROWS), max_size=6), st.sampled_from(FORGETTING), st.booleans())
@settings(max_examples=25)
def test_batches_do_not_matter(cuts: list[int], forgetting: dict[str, float], intercept: bool) -> None:
    """Also if a later batch has longer rows than all before, for which the estimator makes room."""
    X, z, draws, weights = make_rows(7)
    X = X * np.linspace(0.1, 3.0, ROWS)[:, None]
    ends = [0, *sorted({cut for cut in cuts if 0 < cut < ROWS}), ROWS]
    for whole, target in (
        (WeightedGLMClassifier(**forgetting, fit_intercept=intercept), np.digitize(z + draws, [-0.5, 1.0])),
        (WeightedGLMRegressor(**forgetting, fit_intercept=intercept), z),
        (WeightedGLMRegressor(**forgetting, fit_intercept=intercept, link="poisson"), np.floor(4 * draws)),
    ):
        parts = copy.deepcopy(whole)
        first = {"classes": [0, 1, 2]} if isinstance(whole, WeightedGLMClassifier) else {}
        weights[0] = 1.0
        for start, end in itertools.pairwise(ends):
            parts.partial_fit(X[start:end], target[start:end], **first, sample_weight=weights[start:end])
        whole.fit(X, target, weights)
        np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(parts.intercept_, whole.intercept_, rtol=1e-7, atol=1e-8)


def test_fit_starts_anew_and_a_pickle_continues() -> None:
    X, z, draws, _ = make_rows(8)
    y = draws < 1 / (1 + np.exp(-z))
    model = WeightedGLMClassifier(HALF_LIFE).fit(X, y)
    first = model.coef_
    np.testing.assert_array_equal(model.fit(X, y).coef_, first)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.partial_fit(X, ~y).coef_, model.partial_fit(X, ~y).coef_)
    assert not np.array_equal(first, model.coef_)
    assert (model.predict(X) == ~y).mean() > 0.6  # it has turned around


def test_memory_is_bounded() -> None:
    """Rows that no longer matter are not stored; the identity link stores none."""
    X, _, draws, _ = make_rows(9)
    model, line, sizes = WeightedGLMClassifier(half_life=2.0), WeightedGLMRegressor(), []
    for _ in range(5):
        model.partial_fit(X, draws < 0.5, classes=[False, True])
        line.partial_fit(X, draws)
        sizes.append((len(pickle.dumps(model)), len(pickle.dumps(line))))
    assert sizes[2] == sizes[3] == sizes[4]
    assert sizes[0][1] == sizes[4][1]


def test_it_works_in_pipelines_and_cross_validation() -> None:
    """On a world that turns halfway, forgetting predicts the next rows better."""
    X, z, draws, _ = make_rows(10)
    y = (draws < 1 / (1 + np.exp(-3 * z))) ^ (np.arange(ROWS) >= ROWS // 2)
    folds = TimeSeriesSplit(10)
    forgetful, lasting = (
        cross_val_score(make_pipeline(StandardScaler(), WeightedGLMClassifier(half_life)), X, y, cv=folds).mean()
        for half_life in (20, None)
    )
    assert forgetful > lasting + 0.1


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"half_life": 0.0}, "half_life"), ({"gamma": 1.1}, "gamma"), ({"half_life": 3, "gamma": 0.5}, "gamma"),
        ({"alpha": 0.0}, "alpha"), ({"intercept_scaling": -1.0}, "intercept_scaling"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(changes: dict[str, float], argument: str) -> None:
    X, z, draws, _ = make_rows()
    for model, y in ((WeightedGLMClassifier(**changes), draws < 0.5), (WeightedGLMRegressor(**changes), z)):
        with pytest.raises(ArgumentError) as caught:
            model.fit(X, y)
        assert caught.value.argument == argument


def test_other_links_are_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        WeightedGLMRegressor(link="probit").fit([[1.0]], [0.5])
    assert caught.value.argument == "link"


def test_bad_calls_are_refused() -> None:
    X, _, draws, _ = make_rows()
    y = draws < 0.5
    with pytest.raises(ValueError, match="classes must be passed"):
        WeightedGLMClassifier().partial_fit(X, y)
    with pytest.raises(ValueError, match="one class"):
        WeightedGLMClassifier().fit(X, np.ones(ROWS))
    model = WeightedGLMClassifier().partial_fit(X, y, classes=[False, True])
    with pytest.raises(ValueError, match="differs from the classes"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X, np.full(ROWS, 7))
    with pytest.raises(ValueError, match="call fit after a change"):
        model.set_params(alpha=3.0).partial_fit(X, y)
    for weights in (np.full(ROWS, -1.0), np.full(ROWS, 1e13)):
        with pytest.raises(ValueError, match="sample_weight must be between"):
            WeightedGLMClassifier().fit(X, y, weights)
    with pytest.raises(ValueError, match="y must be between 0"):
        WeightedGLMRegressor(link="poisson").fit(X, -np.ones(ROWS))
    with pytest.raises(NotFittedError):
        WeightedGLMRegressor().predict(X)


def test_a_refused_batch_changes_nothing() -> None:
    X, _, draws, _ = make_rows()
    model = WeightedGLMClassifier(HALF_LIFE).fit(X, draws < 0.5)
    before = pickle.dumps(model)
    for rows, target in ((np.full_like(X, np.nan), draws < 0.5), (X, np.full(ROWS, 7)), (X[:, :2], draws < 0.5)):
        with pytest.raises(ValueError):
            model.partial_fit(rows, target)
    assert pickle.dumps(model) == before


def test_rows_of_very_different_lengths_are_warned_of() -> None:
    """Doubles cannot hold what both kinds of rows contribute, so the coefficients cannot be found."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + rng.normal(size=200) > 0).astype(int)
    lengths = np.where(np.arange(200) < 100, 1.0, 1e15)[:, None]
    with pytest.warns(ConvergenceWarning, match="scale its columns"):
        WeightedGLMClassifier().fit(X * lengths, y)
    WeightedGLMClassifier().fit(X * np.sqrt(lengths), y)  # without a warning, which would be an error here
