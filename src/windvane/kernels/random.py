"""Counter-based random numbers: a uniform depends on (seed, lane id, number, purpose, block) and on nothing else.

The number is a round or a decision number; the purpose is one of the constants below. The generator is Philox 4x32-10
of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). It has no state, so it gives
the same numbers however lanes are batched, split over threads, or resumed.
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.jit import compiled, compiled_inner

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_TO_UNIT = 2.0**-53  # a double has 53 bits: 32 from one word and the upper 21 of the next
_KEPT_BITS, _DROPPED_BITS = np.uint64(21), np.uint64(11)

# Purposes
TIES = 0  # which of the equally good arms is played
REWARDS = 1  # the noise of a reward
ARMS = 2  # the features of arms
DRIFT = 3  # the path of theta*
DELAYS = 4  # the delay of a reward
PRESENCE = 5  # which arms are on offer
SAMPLES = 6  # what a randomised policy adds to its estimate
MASTER = 7  # which of its policies a master uses
PLAY = 8  # when an agent plays at random, and which arm
OWN = 255  # what a policy of the user's own draws; far from the others, which count up from 0
_BLOCK_SHIFT = np.uint64(8)  # the last word of a counter holds the purpose in its low 8 bits, the block in the other 24
LARGEST_BLOCK = 2**24 - 1


@compiled_inner
def philox(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Apply ten rounds of Philox to a 4 x 32-bit counter with a 2 x 32-bit key (32-bit words stored in uint64)."""
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> _HALF) ^ c1 ^ k0,
            product_1 & _MASK,
            (product_0 >> _HALF) ^ c3 ^ k1,
            product_0 & _MASK,
        )
        k0 = (k0 + _WEYL_0) & _MASK
        k1 = (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


@compiled
def uniform_pair(seed: np.uint64, lane: int, number: int, purpose: int, block: int) -> tuple[float, float]:
    """Return two uniforms in [0, 1). ``lane`` is an id below 2**32, ``block`` at most LARGEST_BLOCK."""
    counter = np.uint64(number)
    first, second, third, fourth = philox(
        counter & _MASK,
        counter >> _HALF,
        np.uint64(lane) & _MASK,
        np.uint64(purpose) | (np.uint64(block) << _BLOCK_SHIFT),
        seed & _MASK,
        seed >> _HALF,
    )
    return (
        float((first << _KEPT_BITS) | (second >> _DROPPED_BITS)) * _TO_UNIT,
        float((third << _KEPT_BITS) | (fourth >> _DROPPED_BITS)) * _TO_UNIT,
    )


@compiled
def uniform(seed: np.uint64, lane: int, number: int, purpose: int) -> float:
    """Return one uniform in [0, 1): the first of block 0."""
    return uniform_pair(seed, lane, number, purpose, 0)[0]
