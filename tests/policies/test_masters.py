"""What masters over policies have in common."""

from __future__ import annotations

import pickle
import time
import numpy as np
import pytest
from hypothesis import settings
from numpy.linalg import norm
from support.worlds import play, same_state
from windvane import BOB, BOBBVDGLMUCB, BVDGLMUCB, BanditOverBandits, MasterGLMUCB, MasterOFUL, OFUL, PerLane, Sphere
from windvane.kernels import linalg

EVERY = FACTORIES | {f"{name}, short": factory for name, factory in SHORT.items()}
every = pytest.mark.parametrize("factory", EVERY.values(), ids=EVERY)


@every
def test_a_pickled_policy_goes_on_alike(factory) -> None:
    world = World([0, 1], 3)
    policy = factory(dim=3, lanes=2, seed=2)
    play(policy, world, range(27))
    again = pickle.loads(pickle.dumps(policy))
    assert np.array_equal(play(policy, world, range(27, 70)), play(again, world, range(27, 70)))
    assert same_state(policy.state(), again.state())


@every
@pytest.mark.parametrize("saved_after", [0, 8, 9, 26, 27])
def test_a_loaded_policy_goes_on_alike(factory, saved_after: int) -> None:
    """Also where a block has just ended, and with time that is not whole."""
    world = World([4, 1], 3)
    policy, again = (factory(dim=3, lanes=[4, 1], seed=2) for _ in range(2))
    play(policy, world, range(saved_after))
    policy.advance(0.7)
    again.load_state(policy.state())
    assert same_state(policy.state(), again.state())
    assert np.array_equal(play(policy, world, range(27, 60)), play(again, world, range(27, 60)))
    assert same_state(policy.state(), again.state())
    with pytest.raises(ValueError, match="other settings"):
        factory(dim=3, lanes=[4, 1], seed=3).load_state(policy.state())
    with pytest.raises(ValueError, match="dict of arrays"):
        policy.load_state([])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown entries"):
        policy.load_state(policy.state() | {"surplus": np.zeros(1)})


@every
def test_arms_from_a_sphere(factory) -> None:
    """Lanes together equal lanes alone there too."""
    policies = [factory(dim=3, lanes=lanes, seed=1) for lanes in ([5, 2], [5], [2])]
    for t in range(25):
        both, first, second = (policy.select_from(Sphere(0.5 * policy.L)) for policy in policies)
        assert np.array_equal(both, np.concatenate([first, second]))
        assert np.linalg.norm(both, axis=1) == pytest.approx(0.5 * policies[0].L)
        for policy, x in zip(policies, (both, first, second), strict=True):
            policy.update(x, (x[:, 0] + 0.1 * np.sin(t) > 0).astype(float))


@every
def test_restart_forgets(factory) -> None:
    world, policy = World([0, 1], 3), factory(dim=3, lanes=2)
    play(policy, world, range(20))
    policy.restart()
    assert not np.asarray(policy.b).any()
    assert not np.asarray(policy.theta_hat).any()
    play(policy, world, range(20, 40))


def test_masters_tell_the_bound_of_their_policies() -> None:
    for policy in (BOB(2, horizon=50, S=2.0), MasterOFUL(2, horizon=50, S=2.0), PerLane(BVDGLMUCB, dim=2, gamma=0.9)):
        assert (1.0 if isinstance(policy, PerLane) and not isinstance(policy, MasterOFUL) else 2.0) == policy.S


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: BOB(2, horizon=0), "horizon"),
        (lambda: BOB(2, horizon=10, block=0), "block"),
        (lambda: BOB(2, horizon=10, windows=[]), "windows"),
        (lambda: BOB(2, horizon=10, windows=[0.0]), "window"),
        (lambda: BOBBVDGLMUCB(2, horizon=10, discounts=[1.5]), "gamma"),
        (lambda: BanditOverBandits(OFUL, dim=2, horizon=10, block=5, grid=[1.0], parameter="lam"), "parameter"),
        (lambda: MasterOFUL(2, horizon=10, first_order=-1), "first_order"),
        (lambda: MasterOFUL(2, horizon=10, test_scale=-1.0), "test_scale"),
        (lambda: MasterGLMUCB(2, horizon=10, delta=0.0), "delta"),
    ],
)
def test_bad_settings_of_masters(make, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}"):
        make()
