"""The paper's experiment with the literal transcription: ``python -m naive [rounds]``."""

import sys
import time

import numpy as np
from numpy.linalg import norm
from scipy.special import expit

import naive


def main(rounds: int) -> None:
    """The paper's experiment, its path of theta* squeezed into ``rounds`` (3000 in the paper)."""
    rng, policy = np.random.default_rng(0), naive.NaiveBVDGLMUCB(dim=2, link="logistic", gamma=0.995908, delta=0.05)
    stages, regret, clock = {1: 0, 2: 0, 3: 0}, 0.0, [time.perf_counter()]  # stage 1: theta_hat in the ball
    for t in range(1, rounds + 1):
        angle = np.pi / 2 * np.clip(3 * t / rounds - 1, 0, 1)  # from (1,0) to (0,1) in the second third
        arms = rng.normal(size=(10, 2))
        arms *= np.sqrt(rng.random((10, 1))) / norm(arms, axis=1, keepdims=True)  # uniform in the disc
        means = expit(arms @ np.array([np.cos(angle), np.sin(angle)]))
        k = policy.select(arms)
        policy.update(arms[k], float(rng.random() < means[k]))
        clock.append(time.perf_counter())
        stages[policy.stage] += 1
        regret += float(means.max() - means[k])
    times = 1e6 * np.diff(clock)
    print(f"{times.mean():.0f} us per round, {times[-rounds // 10 :].mean():.0f} in the last tenth")
    print(f"theta_hat outside the ball: {1 - stages[1] / rounds:.1%}; stages {stages}; regret {regret:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
