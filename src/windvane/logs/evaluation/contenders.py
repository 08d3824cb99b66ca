"""The policies of an evaluation: parse what the user gives, and build the policies for a log."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from windvane.arguments import Array, Index, check_lanes
from windvane.errors import ArgumentError
from windvane.lab.run.build import FILLED, FILLED_ALWAYS, build_policy, resolve_policy
from windvane.links import Link, get_link
from windvane.logs.log import LogSchema
from windvane.policies.registry import Signature

if TYPE_CHECKING:
    from windvane.lab.spec.policy_spec import PolicySpec
    from windvane.policies.base import Policy

ASSUMED_S = 1.0  # the norm bound, and B_T = 2 S, one reversal, that `windvane benchmark streams` assumes
PURPOSE = 0x706F6C69  # of the random numbers of policies, in their seed
_CALL = re.compile(r"(?P<name>[^()]+)\((?P<settings>.*)\)\s*", re.DOTALL)
_KEYS = ("policy", "label", "settings", "told")


class Contender(NamedTuple):
    """A policy to evaluate, with its name in the results."""

    label: str
    spec: PolicySpec


@dataclass(frozen=True, kw_only=True)
class LogWorld:
    """Stands in for an environment when a policy is built for a log. theta* is unknown, so S and B_T are assumed."""

    dim: int
    L: float
    horizon: int
    lane_ids: Index
    seed: int
    S: float
    sigma: float = 0.5  # rewards are in [0, 1]
    has_theta: bool = False
    has_fixed_arms: bool = False
    reward_range: tuple[float, float] = (0.0, 1.0)

    @property
    def link(self) -> Link:
        """The link: rewards are in [0, 1]."""
        return get_link("logistic")

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return len(self.lane_ids)

    @property
    def variation(self) -> Array:
        """The B_T that policies assume, [lanes]."""
        return np.full(self.lanes, 2.0 * self.S)

    @property
    def switches(self) -> Index:
        """The number of changes that policies assume, [lanes]."""
        return np.ones(self.lanes, dtype=np.int64)


def list_contenders(policies: Any) -> list[Contender]:
    """Return the policies of an evaluation.

    Parameters
    ----------
    policies
        One policy or several: a name, ``"module:Class"``, a class, text such as ``"BVD-GLM-UCB(gamma=0.99, S=2)"``
        with a TOML table in parentheses, a tuple (label, class or name, settings), or a mapping with the keys
        ``policy``, ``label``, ``settings`` and ``told``. A mapping from labels to these is accepted too.

    Returns
    -------
    list of Contender
        The policies, with different labels.

    Examples
    --------
    >>> contender = list_contenders("D-LinUCB(gamma=0.99)")[0]
    >>> contender.label, dict(contender.spec.settings)
    ('D-LinUCB(gamma=0.99)', {'gamma': 0.99})
    """
    if isinstance(policies, Mapping) and "policy" not in policies:
        found = [_read_contender(policy, str(label)) for label, policy in policies.items()]
    else:
        is_single = isinstance(policies, str | type | Mapping) or _is_labelled(policies)
        if not is_single and not isinstance(policies, Sequence):
            raise ArgumentError("policies", policies, "a policy, a list of policies, or a mapping from labels to them")
        found = [_read_contender(policy) for policy in ([policies] if is_single else policies)]
    if not found:
        raise ArgumentError("policies", policies, "at least one policy")
    labels = [contender.label for contender in found]
    for label in labels:
        if labels.count(label) > 1:
            raise ArgumentError("policies", label, "different from each other", hint="give them labels")
    return found


def _is_labelled(policy: Any) -> bool:
    """Return whether ``policy`` is a tuple (label, class or name, settings)."""
    return isinstance(policy, tuple) and len(policy) == 3 and isinstance(policy[2], Mapping)


def _read_contender(policy: Any, label: str | None = None) -> Contender:
    from windvane.lab.spec.policy_spec import PolicySpec

    settings: Mapping[str, Any] = {}
    told, shown = None, label
    if _is_labelled(policy):
        shown, policy, settings = policy
    elif isinstance(policy, Mapping):
        if unknown := set(policy) - set(_KEYS):
            expected = f"a mapping with the keys {', '.join(_KEYS)}"
            raise ArgumentError("policies", dict(policy), expected, got=str(min(unknown)))
        shown, settings, told = policy.get("label", label), policy.get("settings", {}), policy.get("told")
        policy = policy.get("policy")
    if isinstance(policy, str) and (call := _CALL.fullmatch(policy)):
        shown, settings = shown or " ".join(policy.split()), {**_parse_settings(policy, call["settings"]), **settings}
        policy = call["name"].strip()
    spec = PolicySpec(policy, label=shown, settings=settings, told=told).resolve()
    cls = resolve_policy(spec.policy)
    if getattr(cls, "needs_truth", False):
        raise ArgumentError(
            "policies", spec.name, "a policy that does not need the true parameter, which a log does not contain"
        )
    if getattr(cls, "needs_one_hot", False):
        expected = "a policy that chooses by the features of arms, which are not the same in every row of a log"
        raise ArgumentError("policies", spec.name, expected)
    return Contender(label or spec.name, spec)


def _parse_settings(text: str, settings: str) -> dict[str, Any]:
    """Return the settings in the parentheses of a policy."""
    line = " ".join(settings.split())
    try:
        table: dict[str, Any] = tomllib.loads(f"settings = {{ {line} }}")["settings"]
    except tomllib.TOMLDecodeError as error:
        hint = f"settings are written as in TOML, such as Name(gamma=0.99, link='probit'); {error}"
        raise ArgumentError("policies", text, "a name with settings in parentheses", hint=hint) from None
    return table


def derive_seed(seed: int) -> int:
    """Return the seed of the policies of an evaluation.

    A log may have been written by a windvane policy with the same seed. Without a different seed, the evaluated policy
    would use the same random numbers as the log, but the two must be independent.

    Parameters
    ----------
    seed
        The seed of the evaluation.

    Returns
    -------
    int
        A number below 2**64 that is unlikely to be chosen as a seed.

    Examples
    --------
    >>> derive_seed(0) == derive_seed(1)
    False
    """
    return int(np.random.SeedSequence([seed, PURPOSE]).generate_state(1, np.uint64)[0])


def build_contender(spec: PolicySpec, schema: LogSchema, rows: int, *, lanes: int | Sequence[int], seed: int) -> Policy:
    """Return the policy for a log of ``rows`` rows."""
    S = spec.settings.get("S", ASSUMED_S)
    world = LogWorld(
        dim=schema.dim, L=schema.L, horizon=rows, lane_ids=check_lanes(lanes), seed=derive_seed(seed),
        S=ASSUMED_S if S is None else float(S),
    )  # fmt: skip
    return build_policy(spec, cast(Any, world))


def list_assumptions(spec: PolicySpec, policy: Policy) -> dict[str, Any]:
    """Return the values that were assumed for other settings of the policy: S, B_T, the number of rows, and so on."""
    signature = Signature(type(policy))
    known: dict[str, Any] = {}
    for name in FILLED:
        if name in FILLED_ALWAYS or name in spec.settings or not signature.accepts(name):
            continue
        value = getattr(policy, name, None)
        if value is None and name in ("drift", "switches", "gamma"):
            continue  # not set
        value = value.name if isinstance(value, Link) else value
        known[name] = value if isinstance(value, str | None) else np.ravel(value)[0].item()
    return known
