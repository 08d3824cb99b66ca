"""Counter-based random numbers: a uniform depends on (seed, lane, round, stream, block) and on nothing else.

Philox 4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Having no
state, it gives the same numbers however lanes are batched, split over threads, or resumed.
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.jit import compiled

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_TO_UNIT = 2.0**-53

TIES = 0  # which arm wins among equals
REWARDS = 1  # the noise of a reward
ARMS = 2  # the features of arms
DRIFT = 3  # where theta* goes
DELAYS = 4  # how late a reward is
PRESENCE = 5  # which arms are there
SAMPLES = 6  # what a randomised policy adds to its estimate
MASTER = 7  # which of its policies a master lets act
PLAY = 8  # when an agent plays at random, and what
_BLOCK_SHIFT = np.uint64(8)  # a counter's last word: the stream in its low bits, the block above them
LARGEST_BLOCK = 2**24 - 1


@compiled
def philox(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Ten rounds of Philox on a 4 x 32-bit counter under a 2 x 32-bit key (32-bit words held in uint64)."""
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
def uniform_pair(seed: np.uint64, lane: int, moment: int, stream: int, block: int) -> tuple[float, float]:
    """Two uniforms in [0, 1) of the given block: one seed, lane id (below 2**32), round and stream has 2**24 blocks."""
    counter = np.uint64(moment)
    first, second, third, fourth = philox(
        counter & _MASK,
        counter >> _HALF,
        np.uint64(lane) & _MASK,
        np.uint64(stream) | (np.uint64(block) << _BLOCK_SHIFT),
        seed & _MASK,
        seed >> _HALF,
    )
    return (
        float((first << np.uint64(21)) | (second >> np.uint64(11))) * _TO_UNIT,
        float((third << np.uint64(21)) | (fourth >> np.uint64(11))) * _TO_UNIT,
    )


@compiled
def uniform(seed: np.uint64, lane: int, moment: int, stream: int) -> float:
    """One uniform in [0, 1) for this seed, lane id (below 2**32), round and stream."""
    return uniform_pair(seed, lane, moment, stream, 0)[0]
