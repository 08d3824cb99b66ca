"""The uniform numbers behind what policies draw."""

import numpy as np

from windvane.kernels import random


def master_uniform(seed: int, lane: int, turn: int) -> float:
    """The uniform number with which a master draws in a turn."""
    return random.uniform(np.uint64(seed), lane, turn, random.MASTER)


def master_coin(seed: int, lane: int, decision: int, order: int) -> float:
    """The uniform number that decides whether MASTER starts a copy of an order."""
    return random.uniform_pair(np.uint64(seed), lane, decision, random.MASTER, order)[0]


def sample_pair(seed: int, lane: int, decision: int, block: int) -> tuple[float, float]:
    """Two of the uniform numbers behind the sample of a randomised policy."""
    return random.uniform_pair(np.uint64(seed), lane, decision, random.SAMPLES, block)
