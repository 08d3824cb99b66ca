"""The commented spec that ``windvane new`` writes."""

from __future__ import annotations

import math
import textwrap

from windvane.policies.registry import POLICIES

WIDTH = 120  # columns of a line


def wobble(t: int) -> list[float]:
    """A drift of one's own: theta* at round t, with as many entries as ``dim`` and of norm at most S."""
    return [math.cos(t / 500), 0.5 * math.sin(t / 500)]


def _comment(text: str) -> str:
    """Return ``text`` as comment lines of TOML."""
    return textwrap.fill(
        " ".join(text.split()), WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


_POLICIES = f"""\
policy is one of {", ".join(POLICIES)}, or a class of yours as "module:Class", whose module is then imported and its
code run. `windvane policies` describes them. settings are arguments of the constructor. The experiment fills in dim,
lanes and seed, and link, S, L, sigma and horizon unless they are set. told says what it tells the policy about each
run, although nobody knows it in practice: the exact total drift, the number of changes, or nothing. Without told, it is
what the policy accepts, unless a setting (gamma, window, restart_every, drift, switches) says how to forget."""

_TEMPLATE = """\
# An experiment for windvane. Run it with: windvane simulate FILE
#
# A line that begins with # and no space is an alternative. To use it, remove the #; if a line above it sets the same
# key, put a # in front of that one.

title = "a turning world and a jumping one"
runs = 50                # independent runs of each policy in each environment
horizon = 3000           # rounds of a run
seed = 0                 # the same seed gives the same numbers, on any number of cores
#record = 500            # rounds of a run that are kept, 1000 at most
#lanes_per_cell = 50     # runs that a worker takes at once
#diagnostics = true      # record the terms of the analysis as well (slower)

# --- Environments: every policy runs in each of them ---

[[environments]]
name = "turning"
dim = 2                  # features of an arm
link = "logistic"        # how the mean reward follows from <arm, theta*>
#link = "probit"
#link = "poisson"
#link = "identity"
S = 1.0                  # theta* has norm at most S
L = 1.0                  # arms have norm at most L
#intercept = 0.5         # a constant added to <arm, theta*>

# How theta* moves. Angles are in radians, begin, end and share are parts of the horizon, times are rounds.
drift = { kind = "rotation" }
#drift = { kind = "rotation", angle = 3.0, begin = 0.25, end = 0.75 }
#drift = { kind = "static" }
#drift = { kind = "static", theta = [0.6, 0.8] }
#drift = { kind = "arc", angle = 6.28, start = 0.0 }
#drift = { kind = "turns", count = 3, angle = 1.57, share = 0.5 }
#drift = { kind = "switches", times = [1001, 2001], thetas = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]] }
#drift = { kind = "random-switches", count = 4 }
#drift = { kind = "random-walk", step = 0.01 }
#drift = { kind = "random-walk", step = 0.01, start = [0.0, 0.0] }
#drift = { kind = "sinusoid", period = 1000 }
#drift = { kind = "sinusoid", period = 1000, amplitude = [0.0, 0.5], centre = [0.5, 0.0], phase = 1.0 }
#drift = { kind = "piecewise-linear", times = [1, 1500, 3000], points = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]] }
# A function of the round in a module of yours; naming it here means that its module is imported and its code run.
#drift = { kind = "function", function = "windvane.lab.spec.example:wobble" }

# Which arms a round offers.
arms = { kind = "ball", count = 10 }
#arms = { kind = "sphere", count = 10 }
#arms = { kind = "cube", count = 10 }
#arms = { kind = "orthogonal", count = 10 }
#arms = { kind = "gaussian", count = 10 }
#arms = { kind = "skewed", count = 10 }
#arms = { kind = "fixed", arms = [[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]] }
#arms = { kind = "come-and-go", law = "ball", count = 10, lifetime = 100, presence = 0.7 }

# The law of the rewards around their mean; without this line, the one that goes with the link.
#rewards = { kind = "bernoulli" }
#rewards = { kind = "binomial", trials = 10 }
#rewards = { kind = "gaussian", sd = 0.1, sigma = 0.5 }
#rewards = { kind = "poisson" }
#rewards = { kind = "poisson", bound = 20 }

# When rewards arrive; without this line, at once.
#delay = { kind = "none" }
#delay = { kind = "fixed", rounds = 10 }
#delay = { kind = "geometric", mean = 20 }
#delay = { kind = "geometric", mean = 20, most = 200 }
#delay = { kind = "uniform", least = 0, most = 50 }

[[environments]]
name = "jumping"
drift = { kind = "random-switches", count = 3 }
arms = { kind = "sphere", count = 5 }

# A labelled data stream is an environment too: a CSV or Parquet file whose rows are rounds and whose classes are arms.
# Name the column of labels unless it is the last one. S, drift and switches are what policies assume.
# [[environments]]
# name = "electricity"
# kind = "labelled-stream"
# file = "electricity.csv"
# label = "class"

# --- Policies ---
__POLICIES__

[[policies]]
policy = "OFUL"
#settings = { bonus_scale = 0.5 }   # a factor of the exploration bonus

[[policies]]
policy = "GLM-UCB"
#settings = { delta = 0.01 }        # the bonus allows for this probability of being wrong

[[policies]]
policy = "BVD-GLM-UCB"
told = ["drift"]
#label = "BVD"                      # what results call it; needed if a policy is listed twice
#settings = { lam = 0.5 }           # regularisation
#settings = { sigma = 1.0 }         # instead of that of the environment
#settings = { arm_geometry = "general" }   # the recommended discount for arms in general, not for orthogonal ones
#settings = { confidence = "anytime" }     # or "horizon", "pointwise": where the confidence bounds are to hold
#settings = { tolerance = 1e-4 }    # precision of the estimate

[[policies]]
policy = "BVD-GLM-UCB"
label = "BVD-GLM-UCB, not told"
settings = { gamma = 0.995 }        # the discount
#settings = { drift = 2.0 }         # or a guess of the total drift, from which the discount follows

# Lists of values for settings: every combination is run.
[[policies]]
policy = "D-LinUCB"
sweep = { gamma = [0.99, 0.995, 0.999] }
#sweep = { gamma = [0.99, 0.995], bonus_scale = [0.5, 1.0] }
#sweep = { lam = [0.1, 1.0] }
#sweep = { confidence = ["anytime", "horizon"], delta = [0.01, 0.1] }
"""

EXAMPLE = _TEMPLATE.replace("__POLICIES__", _comment(_POLICIES))
