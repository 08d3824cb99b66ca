"""The registered policies, by the names that their papers give them, and the arguments of their constructors.

A new policy needs one line in :data:`REGISTERED`. Everything else that lists the policies is generated from it: ``make
generate`` writes the stubs ``windvane/__init__.pyi`` and ``windvane/policies/__init__.pyi`` and the table in
``docs/reference/policies/index.md``. A test fails if one of them is out of date.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from windvane.errors import ArgumentError

if TYPE_CHECKING:
    from windvane.policies.base import Policy

REGISTERED = (  # module and class of each registered policy, in the order of the tables
    "linear.OFUL",
    "linear.DLinUCB",
    "glm.GLMUCB",
    "bvd_glm_ucb.BVDGLMUCB",
    "references.UniformRandom",
    "references.Oracle",
    "references.Greedy",
    "linear.SWLinUCB",
    "restart.RestartUCB",
    "weight_ucb.LBWeightUCB",
    "sampling.DLinTS",
    "linear.DRandLinUCB",
    "bof_ucb.BOFUCB",
    "bob.BOBBVDGLMUCB",
    "bob.BOB",
    "master_bases.MasterOFUL",
    "master_bases.MasterGLMUCB",
    "detection.DetectGLMUCB",
    "dynamic_lin_ucb.DynamicLinUCB",
    "detection.DetectOFUL",
    "detection.DetectLogisticUCB1",
    "master_bases.MasterLogisticUCB1",
    "glm.SWBVDGLMUCB",
    "abrupt.DGLUCB",
    "abrupt.SWGLUCB",
    "restart.RestartGLB",
    "weight_ucb.GLBWeightUCB",
    "weight_ucb.SCBWeightUCB",
    "abrupt.SCDGLUCB",
    "abrupt.SCSWGLUCB",
    "sampling.DGLMTS",
    "glm.OnePassGLM",
    "multi_armed.DUCB",
    "multi_armed.SWUCB",
    "exp3.Rexp3",
    "exp3.EXP3S",
    "ucb_glm.UCBGLM",
    "logistic_ucb_1.LogisticUCB1",
    "ofulog_r.OFULogR",
    "ofuglb.OFUGLB",
    "ofuglb.OFUGLBe",
    "gloc.GLOC",
    "gloc.GLOCTS",
    "ecolog.ECOLogUCB",
    "ada_ofu_ecolog.AdaOFUECOLog",
    "lin_ts.LinTS",
    "lin_ts.GLMTS",
    "pg_ts.PGTS",
    "adaptive_glm_ucb.AdaptiveGLMUCB",
)


class Registry(Mapping[str, "type[Policy]"]):
    """The registered policies by name. Their modules, and numba with them, are imported on first use."""

    @functools.cached_property
    def _classes(self) -> dict[str, type[Policy]]:
        classes = (pkgutil.resolve_name(f"windvane.policies.{path}") for path in REGISTERED)
        return {cls.name: cls for cls in classes}

    def __getitem__(self, name: str) -> type[Policy]:
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)


POLICIES = Registry()


def get_policy(name: str) -> type[Policy]:
    """Return the policy class that is registered under ``name``.

    Parameters
    ----------
    name
        The name of the algorithm, such as ``"BVD-GLM-UCB"``.

    Examples
    --------
    >>> from windvane.policies import get_policy
    >>> get_policy("OFUL").__name__
    'OFUL'
    """
    if name not in POLICIES:
        raise describe_unknown_policy("name", name, "the name of a policy")
    return POLICIES[name]


def describe_unknown_policy(argument: str, name: str, expected: str, others: Iterable[str] = ()) -> ArgumentError:
    """Return the error for a name that no policy has; there are too many policies to list them in a message.

    ``others`` are names that are accepted in addition to the registered ones.
    """
    known = {other.casefold(): other for other in (*POLICIES, *others)}
    close = get_close_matches(name.casefold(), known, 1)
    hint = f"did you mean {known[close[0]]!r}?" if close else "`windvane policies` lists them"
    return ArgumentError(argument, name, expected, hint=hint)


class Signature:
    """The constructor arguments of a class, for code that builds policies from settings in a file.

    ``names`` are the arguments that can be passed by name, and ``required`` are those without a default.

    Parameters
    ----------
    cls
        The class. It need not be a subclass of :class:`windvane.Policy`.

    Examples
    --------
    >>> from windvane.policies import OFUL
    >>> Signature(OFUL).required
    ['dim']
    """

    def __init__(self, cls: type[Policy]) -> None:
        self.cls = cls
        parameters = inspect.signature(cls).parameters.values()
        self._takes_anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._parameters = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self.names = tuple(self._parameters)
        self.required = [name for name, p in self._parameters.items() if p.default is p.empty]

    def accepts(self, name: str) -> bool:
        """Return whether the constructor accepts an argument of this name."""
        return self._takes_anything or name in self._parameters

    def may_be_none(self, name: str) -> bool:
        """Return whether the constructor declares that the argument may be None."""
        parameter = self._parameters.get(name)
        return parameter is not None and (parameter.default is None or "None" in str(parameter.annotation))

    def is_text(self, name: str) -> bool:
        """Return whether the argument is certainly a text and never None."""
        parameter = self._parameters.get(name)
        return parameter is not None and isinstance(parameter.default, str) and not self.may_be_none(name)

    def is_number(self, name: str) -> bool:
        """Return whether the argument is certainly a number, so that a boolean is a mistake."""
        parameter = self._parameters.get(name)
        if parameter is None:
            return False
        if parameter.annotation is parameter.empty:
            return isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool)
        annotation = str(parameter.annotation)
        return "bool" not in annotation and annotation not in ("Any", "typing.Any", "object")
