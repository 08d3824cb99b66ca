"""One Gymnasium environment, played episode after episode: its observations as arms, its actions as choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from windvane.arguments import Array, Mask, check_array
from windvane.errors import ArgumentError, format_value

MASKS = ("valid", "action_mask")  # keys of an observation that say which arms are on offer; the last also of an info
HINT = "pass `arms`, a function from an observation to the features [K, dim]"


class Episodes:
    """The episodes of one lane. Errors name the lane and the round.

    ``read_arms`` returns the features of the arms for an observation; None if the observation has them.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], lane: int, read_arms: Callable[[Any], npt.ArrayLike] | None
    ) -> None:
        self.env, self._lane, self._read_arms = env, lane, read_arms
        space = env.action_space
        if not isinstance(space, spaces.Discrete):
            expected = "a function that builds environments with a Discrete action space"
            raise ArgumentError("make", env, expected, got=format_value(space), where=f"lane {lane}")
        self.count, self._first = int(space.n), int(space.start)
        self._observation: Any = None
        self._info: Mapping[str, Any] = {}
        self._has_ended = True

    def reset(self, seed: int | None = None) -> None:
        """Start an episode."""
        self._observation, self._info = self.env.reset(seed=seed)
        self._has_ended = False

    def read(self, t: int, dim: int | None) -> tuple[Array, Mask]:
        """Return the features of the arms in round ``t``, [K, dim], and which of them are on offer, [K].

        If the last episode has ended, start another. ``dim`` None: an arm has any number of features.
        """
        if self._has_ended:
            self.reset()
        return self._find_arms(t, dim), self._find_mask(t)

    def step(self, arm: int) -> Any:
        """Play an arm. Return the reward as the environment gave it."""
        self._observation, reward, terminated, truncated, self._info = self.env.step(self._first + arm)
        self._has_ended = bool(terminated or truncated)
        return reward

    def _where(self, t: int) -> str:
        return f"lane {self._lane}, round {t}"

    def _find_arms(self, t: int, dim: int | None) -> Array:
        name, features = "make", self._observation
        if self._read_arms is not None:
            name, features = "arms", self._read_arms(features)
        elif isinstance(features, Mapping):
            if "arms" not in features:
                expected, got = 'an environment whose observation has "arms"', f"the keys {_list(features)}"
                raise ArgumentError(name, features, expected, got=got, where=self._where(t), hint=HINT)
            features = features["arms"]
        try:
            arms = check_array(name, features, (self.count, dim))
        except ArgumentError as error:
            width = "dim" if dim is None else dim
            expected = f"a function that yields features of shape ({self.count}, {width}), a row for every action"
            got = error.got or format_value(features)
            raise ArgumentError(
                name, features, expected, got=got, where=self._where(t), hint=HINT if name == "make" else ""
            ) from None
        if not arms.shape[1]:
            raise ArgumentError(name, features, "a function that yields arms with features", where=self._where(t))
        return arms

    def _find_mask(self, t: int) -> Mask:
        masks = self._observation if isinstance(self._observation, Mapping) else {}
        key = next((key for key in MASKS if key in masks), MASKS[-1])
        mask = masks[key] if key in masks else self._info.get(key)
        if mask is None:
            return np.ones(self.count, dtype=bool)
        array = np.asarray(mask)
        is_mask = array.shape == (self.count,) and array.dtype.kind in "biuf"
        if not is_mask or not np.isin(array, (0, 1)).all() or not array.any():
            expected = f'an environment whose "{key}" is {self.count} zeros and ones, at least one of them a one'
            raise ArgumentError("make", mask, expected, where=self._where(t))
        return array.astype(bool)


def _list(keys: Iterable[Any]) -> str:
    return ", ".join(map(format_value, keys)) or "none"
