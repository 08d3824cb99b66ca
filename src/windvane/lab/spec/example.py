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
code run. `windvane policies` describes them. All keys but policy, label and sweep are settings of its constructor.
dim, lanes and seed come from the experiment; so do link, S, L, sigma and horizon, if they are not set here; and so do
the true drift and number of changes of the environment, from which a policy computes how fast to forget, if none of
gamma, window, restart_every, drift and switches is set or swept."""

_TEMPLATE = """\
# An experiment for windvane. Run it with: windvane simulate FILE
#
# A line that begins with # and no blank is an alternative. To use it, take the # away; if a line above it sets the same
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

# A labelled data stream is an environment too, whose arms are the classes: in place of drift and arms, write
# stream = "data.csv" (CSV or Parquet) and, unless it is the last column, the column of labels: label = "class".

# --- Policies ---
__POLICIES__

[[policies]]
policy = "OFUL"
#bonus_scale = 0.5       # a factor before the exploration bonus

[[policies]]
policy = "GLM-UCB"
#delta = 0.01            # confidence: the chance of being wrong that the bonus allows for

[[policies]]
policy = "BVD-GLM-UCB"
#label = "BVD"           # what results call it; needed if a policy stands here twice
#gamma = 0.995           # the discount
#drift = 2.0             # or a guess of the total drift, from which it follows
#arm_geometry = "general" # the recommended discount for arms in general, not for orthogonal ones
#lam = 0.5               # regularisation
#confidence = "anytime"  # or "horizon", "pointwise": where the confidence bounds are to hold
#sigma = 1.0             # told to the policy in place of the environment's
#tolerance = 1e-4        # precision of the estimate

# Lists of values for gamma, bonus_scale, posterior_scale or delta: every combination is run.
[[policies]]
policy = "D-LinUCB"
sweep = { gamma = [0.99, 0.995, 0.999] }
#sweep = { gamma = [0.99, 0.995], bonus_scale = [0.5, 1.0] }
#sweep = { delta = [0.01, 0.1] }
"""

EXAMPLE = _TEMPLATE.replace("__POLICIES__", _comment(_POLICIES))
