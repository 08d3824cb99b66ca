"""Simulated worlds: drifts, arm laws, reward laws and delay laws, combined freely by :class:`Environment`.

:class:`LabelledStream` makes an environment of a labelled data stream, from arrays or a file.
:mod:`windvane.environments.gymnasium`, which needs the package gymnasium, connects both to Gymnasium. All environments
have the attributes and methods of :class:`AnyEnvironment`.

A drift or law is a small frozen record. Fields and arguments outside their range, and parts that do not fit together,
raise :class:`windvane.errors.ArgumentError`.
"""

# isort: off
# fmt: off
from windvane.environments.arms import (
    ARM_LAWS, ArmLaw, ArmsDrawnOnce, ArmStream, BallArms, ComeAndGo, CubeArms, FixedArms, GaussianArms, OrthogonalArms,
    SkewedArms, SphereArms,
)
from windvane.environments.drift import (
    DRIFTS, Arc, Drift, FunctionDrift, PiecewiseLinear, RandomSwitches, RandomWalk, Rotation, Sinusoid, Static,
    Switches, Turns,
)
from windvane.environments.environment import Environment
from windvane.environments.labelled_stream import LabelledStream
from windvane.environments.logged_path import LoggedPath
from windvane.environments.paths import Path
from windvane.environments.protocol import AnyEnvironment, Outcome, Round
from windvane.environments.rewards import (
    DELAYS, REWARD_LAWS, BernoulliRewards, BinomialRewards, BoundRewards, DelayLaw, FixedDelay, GaussianRewards,
    GeometricDelay, NoDelay, PoissonRewards, RewardLaw, UniformDelay,
)

__all__ = [
    "ARM_LAWS", "DELAYS", "DRIFTS", "REWARD_LAWS", "AnyEnvironment", "Arc", "ArmLaw", "ArmStream", "ArmsDrawnOnce",
    "BallArms", "BernoulliRewards", "BinomialRewards", "BoundRewards", "ComeAndGo", "CubeArms", "DelayLaw", "Drift",
    "Environment", "FixedArms", "FixedDelay", "FunctionDrift", "GaussianArms", "GaussianRewards", "GeometricDelay",
    "LabelledStream", "LoggedPath", "NoDelay", "OrthogonalArms", "Outcome", "Path", "PiecewiseLinear",
    "PoissonRewards", "RandomSwitches", "RandomWalk", "RewardLaw", "Rotation", "Round", "Sinusoid", "SkewedArms",
    "SphereArms", "Static", "Switches", "Turns", "UniformDelay",
]
