"""A spec, and the objects that specs of tests name as ``support.spec_objects:...``."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager

import numpy as np

from support.refusals import rejects
from windvane.environments import ARM_LAWS, DRIFTS, BallArms, SphereArms
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec, SpecError
from windvane.lab.spec.spec_errors import format_path
from windvane.links import CustomLink
from windvane.policies.linear import DLinUCB

BASE = """\
title = "two worlds"
runs = 50
horizon = 300
seed = 0

[[environments]]
name = "turning"
dim = 2
link = "logistic"
drift = { kind = "rotation" }
arms = { kind = "ball", count = 10 }

[[environments]]
name = "waving"
S = 2.0
[environments.drift]
kind = "sinusoid"
period = 100
[environments.arms]
kind = "fixed"
arms = [
  [1.0, 0.0],
  [0.0, 1.0],
]

[[policies]]
policy = "BVD-GLM-UCB"
label = "BVD, half the bonus"
settings.bonus_scale = 0.5

[[policies]]
policy = "D-LinUCB"
settings.lam = 1.0
sweep.gamma = [
  0.9,
  0.99,
]
"""


class Mine(DLinUCB):
    """A policy of one's own with a setting of its own."""

    def __init__(self, dim, *, gamma, boldness, greedy=False, lanes=1, seed=0):
        super().__init__(dim, gamma=gamma, lanes=lanes, seed=seed)
        self.boldness, self.greedy = boldness, greedy


class Anything(DLinUCB):
    """A policy that takes whatever it is given."""

    def __init__(self, **settings):
        self.given = dict(settings)
        super().__init__(settings["dim"], gamma=settings["gamma"], lanes=settings["lanes"], seed=settings["seed"])


class Breaks(DLinUCB):
    def __init__(self, dim, lanes=1, seed=0):
        raise TypeError("no\nluck")


class NoPolicy:
    pass


def half_turn(t):
    return [np.cos(t / 100), np.sin(t / 100)]


def breaks_late(t):
    return [1.0, 0.0] if t < 200 else "nothing"


def make_link(slope=0.1):
    return CustomLink("slow", lambda z: 0.5 + slope * z, lambda z: slope + 0.0 * z)


def flat_mean(z):
    return 0.5 + 0.1 * z


FLAT = CustomLink("flat", flat_mean, lambda z: 0.1 + 0.0 * z)


def rotation(**fields):
    return DRIFTS["rotation"](**fields)


def a_spec(**changes):
    values = {
        "environments": [EnvironmentSpec("a", rotation(), ARM_LAWS["ball"]())],
        "policies": [PolicySpec("D-LinUCB")],
        "horizon": 300,
    }
    return Spec(**{**values, **changes})


def with_environment(**changes):
    return a_spec(environments=[dataclasses.replace(a_spec().environments[0], **changes)])


def with_policy(policy="D-LinUCB", **changes):
    return a_spec(policies=[PolicySpec(policy, **changes)])


class LongArms(BallArms):
    """Arms of a user's own: all as long as they may be."""

    def bind(self, **world):
        return SphereArms(self.count).bind(**world)


@contextmanager
def refused(field, where="", mention=""):
    """Expect a :class:`SpecError` at ``field`` (as ``format_path`` writes a path) and ``where``."""
    with rejects(error=SpecError, where=where) as caught:
        yield caught
    assert format_path(caught.value.path) == field, caught.value
    assert mention in caught.value.problem
