"""Compile the kernels that policies need, or load them from the cache, before the first decision."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.arms import Ball
from windvane.errors import ArgumentError

if TYPE_CHECKING:
    from windvane.environments import AnyEnvironment
    from windvane.policies.base import Policy

HEAVY = 100.0  # a reward of this weight moves the estimate out of the ball ||theta|| <= S, so that it is projected
PROJECT = "from windvane.estimation import *; MaximumLikelihoodEstimator(1, forgetting=Never()).project(0)"
# Arguments for building a policy class, which gets those that it accepts.
TOY: dict[str, Any] = {"dim": 2, "horizon": 9, "drift": 1.0, "switches": 1.0, "truth": lambda _t, arms: arms[..., 0]}


def warm_up(
    policies: Iterable[str | type[Policy] | Policy] | None = None,
    environments: Iterable[AnyEnvironment] = (),
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> float:
    """Compile, or load from the cache, the kernels that policies and environments need. Return the seconds it took.

    Parameters
    ----------
    policies
        Registered names, policy classes, or new policies (they play a few rounds, so do not use them afterwards). A
        class must not require arguments other than ``dim``, ``horizon``, ``drift``, ``switches`` and ``truth``.
        Default: all registered policies.
    environments
        Environments; they play a round, so do not use one afterwards that must play its rounds in order. Default: none.
    report
        Called with the number of policies that are done and of all, before the first and after each.

    Notes
    -----
    Without this call, kernels are compiled when they are first used. Compiled code is stored in the cache folder (see
    :mod:`windvane.kernels.cache`), so only the first start on a machine waits. If the folder cannot be written, every
    process compiles again.

    Examples
    --------
    >>> import windvane
    >>> seconds = windvane.warm_up(["D-LinUCB", windvane.OFUL])
    """
    from windvane.policies.registry import POLICIES, get_policy

    if isinstance(policies, str):
        raise ArgumentError("policies", policies, "a list of names, classes or policies")
    start, instances = time.perf_counter(), []
    for policy in POLICIES if policies is None else policies:
        if isinstance(policy, str):
            policy = get_policy(policy)
        if isinstance(policy, type):
            names = inspect.signature(policy).parameters
            policy = policy(**{name: value for name, value in TOY.items() if name in names})
        instances.append(policy)
    report(0, len(instances))
    for done, policy in enumerate(compile_projections_in_background(instances), 1):
        _play(policy)
        report(done, len(instances))
    for environment in environments:
        offer = environment.round(1)
        first = np.zeros(environment.lanes, dtype=np.int64) if offer.valid is None else offer.valid.argmax(axis=1)
        environment.play(offer, first)
        environment.delays(1)
        _ = environment.variation
    return time.perf_counter() - start


def compile_projections_in_background(policies: Iterable[Policy]) -> list[Policy]:
    """Compile the projections in a second process if a policy needs them. Return the policies, with those last.

    The projections take about as long as all other kernels, which this process can compile in the meantime.
    """
    from windvane.policies.optimism import OptimisticPolicy

    def projects(policy: Policy) -> bool:
        acting = getattr(policy, "worker", policy)  # the worker of a bandit over bandits
        return isinstance(acting, OptimisticPolicy) and type(acting).project is not OptimisticPolicy.project

    ordered = sorted(policies, key=projects)
    if ordered and projects(ordered[-1]):
        _start_second_process()
    return ordered


@functools.cache  # once per process
def _start_second_process() -> None:
    """Compile the projections by using them, unless they are in the cache or only one core is available."""
    from windvane.kernels.cache import CACHE_DIR, CACHE_ERROR
    from windvane.kernels.threads import available_cores

    is_cached = any(CACHE_DIR.glob("**/*project_lanes*.nbi"))
    is_python = bool(sys.executable) and not getattr(sys, "frozen", False)
    if CACHE_ERROR is not None or is_cached or available_cores() == 1 or not is_python:
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path)), "WINDVANE_QUIET": "1"}
    command, none = [sys.executable, "-P", "-c", PROJECT], subprocess.DEVNULL
    with contextlib.suppress(OSError):  # otherwise this process will compile them itself
        process = subprocess.Popen(command, env=environment, stdin=none, stdout=none, stderr=none)
        threading.Thread(target=process.wait, daemon=True).start()  # no zombie stays behind


def _play(policy: Policy) -> None:
    """Make some decisions of each kind and learn from them, so that one estimate is projected."""
    if policy.needs_one_hot:
        arms = np.tile(np.eye(policy.dim), (policy.lane_count, 1, 1))
    else:
        arms = np.full((policy.lane_count, 2, policy.dim), 0.5 * policy.L / np.sqrt(policy.dim))
    reward = min(1.0, policy.accepted_rewards[1])
    for weight in (1.0, HEAVY, 1.0):
        choice = policy.select(arms)
        policy.update(arms[np.arange(policy.lane_count), choice], reward, weight=weight)
    policy.select(arms)
    with contextlib.suppress(NotImplementedError):  # a custom policy need not implement the other kinds
        policy.probabilities(arms)
    with contextlib.suppress(NotImplementedError, ArgumentError):
        policy.select_from(Ball(policy.L))
    policy.info()
    policy.state()
