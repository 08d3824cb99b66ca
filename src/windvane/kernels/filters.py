"""Kernels of a bank of filters: per lane, several experts with Gaussian beliefs about a moving parameter.

A lane is a row in each of three arrays: ``lanes[lanes]`` and ``beliefs[lanes, experts]`` have named numbers, and
``dense[lanes, experts, rows, d]`` has vectors and matrices: theta, workspace, then N and the buffer. The belief of an
expert is N(theta, P) in units of the dispersion, with

    P = q I - scale (N + sum of b b' over the first ``fill`` rows b of the buffer)

Ageing by one round, theta <- a theta and P <- a^2 P + (1 - a^2) q I, only multiplies theta by a and ``scale`` by a^2.
An observation subtracts a rank-one matrix from P, which is stored as a new row of the buffer. When the buffer is full,
it is added to N, so a large N is read and written only once per many observations. ``least`` is a lower bound on the
eigenvalues of P. It is updated without N, so rounding errors in N cannot make a variance negative.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import LOGISTIC, POISSON, PROBIT, exponential, mean_slope, mean_slope_array
from windvane.kernels.jit import compiled, compiled_inner, compiled_view
from windvane.kernels.one_pass import proximal_point

BELIEF = np.dtype(
    [
        ("a", np.float64),  # correlation of theta* between two successive rounds
        ("q", np.float64),  # prior variance of a coordinate, relative to the dispersion
        ("scale", np.float64),  # factor in the formula for P, not the scale S_g of the expert
        ("least", np.float64),
        ("loss", np.float64),  # of its predictions: 0.998^(weight of all later rewards) times each
        ("run_loss", np.float64),  # of all its predictions
        ("dispersion", np.float64),
        ("surprises", np.float64),  # number of observations behind the dispersion
        ("first_dispersion", np.float64),
        ("fill", np.int64),
    ],
    align=True,
)
LANE = np.dtype(
    [
        ("link", np.int64),  # code of the link
        ("acting", np.int64),  # the expert that assessed the last arms
        ("information", np.float64),  # sum of mu' ||x||^2, in which recent observations count more
        ("rounds", np.float64),  # the same sum of the rounds between observations
        ("waited", np.float64),  # rounds since the last observation
        ("variation", np.float64),  # sum of the rates of all rounds
    ],
    align=True,
)
CUSTOM, UNBOUNDED = -1, -2  # codes of a custom link: with bounded rewards, and with any rewards
THETA, DIRECTION, MATRIX = 0, 1, 2  # rows of ``dense``: theta, P x (workspace), the first one of N
ORDER, PLACES = 0, 1  # rows of ``indices``: the experts from fast to slow, and workspace for places of nonzero features
WEIGHTS, Z, V, FADE, Y, MEAN, SLOPE, LOW, HIGH, LAST, REWARD = range(11)  # rows of ``work[ROWS, experts]``
ROWS = 11
ACTING_SHARE = 0.4  # the acting expert is the first, from fast to slow, at which the weights add up to this
RECENT = 0.998  # factor per reward of weight 1, of what counts recent rewards more
SMALLEST_SCALE = 1e-100  # below this, ``scale`` is moved into N
MODERATION = math.pi / 8.0  # the logistic function is about the normal distribution function of z / sqrt(8 / pi)
LARGEST_ERROR = 10.0  # in standard deviations: an unbounded reward farther from its prediction counts as this far
LONGEST_RECORD = 500.0  # observations behind the dispersion, at most
SETTLED = 20.0  # observations behind the dispersion before predictions are scored
SMALLEST_DISPERSION = 1e-12  # relative to the first one
FREEDOM = 5.0  # degrees of freedom of the predictive density of unbounded rewards, so that outliers decide little
CLOSE = 1e-9  # relative size of the last of Newton's steps, whose error is about its square
MOST_STEPS = 200
PANELS = 16  # of Simpson's rule
LARGEST_SHAPE = 1e6  # of the negative binomial density; beyond it is Poisson's, and lgamma would lose digits
SMALLEST_SHAPE = 1e-300


@compiled_view
def N_of(rows: np.ndarray) -> np.ndarray:
    """Return N of an expert, as a view."""
    return rows[MATRIX : MATRIX + rows.shape[1]]


@compiled_view
def buffer_of(rows: np.ndarray) -> np.ndarray:
    """Return the buffer of an expert, as a view."""
    return rows[MATRIX + rows.shape[1] :]


@compiled_inner
def list_nonzeros(x: np.ndarray, indices: np.ndarray) -> int:
    """Write the indices of the nonzero entries of x to ``indices`` and return their number."""
    count = 0
    for i in range(x.shape[0]):
        if x[i] != 0.0:
            indices[count] = i
            count += 1
    return count


@compiled_inner
def sparse_dot(x: np.ndarray, y: np.ndarray, indices: np.ndarray, count: int) -> float:
    """Return <x, y>, where x is zero outside ``indices[:count]``."""
    total = 0.0
    for k in range(count):
        total += x[indices[k]] * y[indices[k]]
    return total


@compiled_inner
def multiply_covariance(belief: np.void, rows: np.ndarray, x: np.ndarray, places: np.ndarray, count: int) -> float:
    """Set rows[DIRECTION] = P x and return x' P x."""
    N, buffer, out = N_of(rows), buffer_of(rows), rows[DIRECTION]
    for i in range(out.shape[0]):
        out[i] = 0.0
    for k in range(count):
        factor, row = x[places[k]], N[places[k]]
        for i in range(out.shape[0]):
            out[i] += factor * row[i]
    for b in range(belief["fill"]):
        factor, row = sparse_dot(x, buffer[b], places, count), buffer[b]
        for i in range(out.shape[0]):
            out[i] += factor * row[i]
    for i in range(out.shape[0]):
        out[i] = belief["q"] * x[i] - belief["scale"] * out[i]
    return max(sparse_dot(x, out, places, count), belief["least"] * sparse_dot(x, x, places, count))


@compiled_inner
def measure_variance(belief: np.void, rows: np.ndarray, x: np.ndarray, places: np.ndarray, count: int) -> float:
    """Return x' P x."""
    N, buffer, known = N_of(rows), buffer_of(rows), 0.0
    for k in range(count):
        known += x[places[k]] * sparse_dot(x, N[places[k]], places, count)
    for b in range(belief["fill"]):
        known += sparse_dot(x, buffer[b], places, count) ** 2
    square = sparse_dot(x, x, places, count)
    return max(belief["q"] * square - belief["scale"] * known, belief["least"] * square)


@compiled_inner
def add_rows(N: np.ndarray, rows: np.ndarray) -> None:
    """Add b b' to N for all rows b."""
    for i in range(N.shape[0]):
        line = N[i]
        for b in range(rows.shape[0]):
            factor, row = rows[b, i], rows[b]
            for j in range(N.shape[0]):
                line[j] += factor * row[j]


@compiled_inner
def age_belief(belief: np.void, rows: np.ndarray, rounds: float) -> None:
    """Let time pass for one expert."""
    if belief["a"] == 1.0:
        return
    a, d = belief["a"] if rounds == 1.0 else belief["a"] ** rounds, rows.shape[1]
    for i in range(d):
        rows[THETA, i] *= a
    belief["scale"] *= a * a
    belief["least"] = a * a * belief["least"] + (1.0 - a * a) * belief["q"]
    if belief["scale"] < SMALLEST_SCALE:
        root = math.sqrt(belief["scale"])
        for row in range(MATRIX, rows.shape[0]):
            for i in range(d):
                rows[row, i] *= belief["scale"] if row < MATRIX + d else root
        belief["scale"] = 1.0


@compiled_inner
def find_acting(beliefs: np.ndarray, order: np.ndarray, share: float, weights: np.ndarray) -> int:
    """Compute the weights of the experts. Return the first, in ``order``, at which their sum reaches ``share``."""
    smallest_loss = math.inf
    for g in range(beliefs.shape[0]):
        smallest_loss = min(smallest_loss, beliefs[g]["loss"])
    for g in range(beliefs.shape[0]):
        weights[g] = exponential(smallest_loss - beliefs[g]["loss"])
    total = 0.0
    for g in range(beliefs.shape[0]):
        total += weights[g]
    reached = 0.0
    for i in range(beliefs.shape[0]):
        reached += weights[order[i]]
        if reached >= share * total:
            return order[i]
    return order[beliefs.shape[0] - 1]


@compiled_inner
def effective_memory(a: float, q: float, information: float) -> float:
    """Return the number of rounds over which an expert averages.

    ``information`` is the information i per round, taken to be the same for every coordinate. In the steady state
    P = (a^2 P + Q) / (1 + i (a^2 P + Q)) with Q = (1 - a^2) q, the weight of an observation falls by the factor
    a (1 - i P) per round.
    """
    if a == 1.0:
        return math.inf
    i, Q = information, (1.0 - a * a) * q
    b = 1.0 - a * a + i * Q  # the positive root of i a^2 P^2 + b P - Q = 0
    P = 2.0 * Q / (b + math.sqrt(b * b + 4.0 * i * a * a * Q))
    return 1.0 / (1.0 - a * (1.0 - i * P))


@compiled_inner
def drift_rate(phi: float, information: float, memory: float, d: int) -> float:
    """Return the speed of theta* for which ``memory`` would be best.

    At speed v, an estimate with memory m lags behind by v m, and its variance is phi d / (2 m i). The squared lag plus
    the variance is smallest at the memory m with v^2 = phi d / (4 i m^3).
    """
    return 0.0 if math.isinf(memory) else math.sqrt(phi * d / (4.0 * information)) * memory**-1.5


@compiled
def age_lanes(
    rounds: float, indices: np.ndarray, lanes: np.ndarray, beliefs: np.ndarray, dense: np.ndarray, work: np.ndarray
) -> None:
    """Let time pass for all experts of all lanes."""
    d = dense.shape[3]
    for i in range(lanes.shape[0]):
        lane = lanes[i]
        if lane["information"] > 0.0:
            acting = beliefs[i, find_acting(beliefs[i], indices[ORDER], ACTING_SHARE, work[WEIGHTS])]
            information = lane["information"] / (lane["rounds"] * d)
            memory = effective_memory(acting["a"], acting["q"], information)
            lane["variation"] += rounds * drift_rate(acting["dispersion"], information, memory, d)
        lane["waited"] += rounds
        for g in range(beliefs.shape[1]):
            age_belief(beliefs[i, g], dense[i, g], rounds)


@compiled
def find_lanes(
    share: float, indices: np.ndarray, lanes: np.ndarray, beliefs: np.ndarray, work: np.ndarray, out: np.ndarray
) -> None:
    """Set out[lane] to the first expert, from fast to slow, at which the weights add up to ``share``."""
    for i in range(lanes.shape[0]):
        out[i] = find_acting(beliefs[i], indices[ORDER], share, work[WEIGHTS])


@compiled
def assess_lanes(
    arms: np.ndarray, factors: np.ndarray, indices: np.ndarray, lanes: np.ndarray, beliefs: np.ndarray,
    dense: np.ndarray, work: np.ndarray, theta: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Let the acting expert of each lane assess its arms.

    With z = <x, theta>, set out[0] = z + factor sqrt(phi x' P x), out[1] = mu(z) and out[2] = mu(out[0]).
    """
    places = indices[PLACES]
    for i in range(lanes.shape[0]):
        g = find_acting(beliefs[i], indices[ORDER], ACTING_SHARE, work[WEIGHTS])
        lanes[i]["acting"] = g
        belief, rows = beliefs[i, g], dense[i, g]
        for j in range(arms.shape[2]):
            theta[i, j] = rows[THETA, j]
        for k in range(arms.shape[1]):
            x = arms[i, k]
            count = list_nonzeros(x, places)
            v = measure_variance(belief, rows, x, places, count)
            z = sparse_dot(x, rows[THETA], places, count)
            out[0, i, k] = z + factors[i] * math.sqrt(belief["dispersion"] * v)
            out[1, i, k], _ = mean_slope(lanes[i]["link"], z)
            out[2, i, k], _ = mean_slope(lanes[i]["link"], out[0, i, k])


@compiled_inner
def log_normal_cdf(z: float) -> float:
    """Return log Phi(z)."""
    if z > -30.0:
        return math.log(0.5 * math.erfc(-z * math.sqrt(0.5)))
    return -0.5 * z * z - math.log(-z * math.sqrt(2.0 * math.pi)) - math.log1p(1.0 / (z * z))  # to 3 / z^4


@compiled_inner
def prediction_loss(link: int, z: float, v: float, reward: float, phi: float) -> float:
    """Return minus the log density of a reward that was predicted as N(z, phi v), up to a constant.

    For probabilities the prediction is moderated: the mean of mu under N(z, v), approximately. A custom link with
    bounded rewards is treated like the logistic one, with B(z) = integral of mu over [0, z].
    """
    if link == LOGISTIC:
        moderated = z / math.sqrt(1.0 + MODERATION * v)
        return max(moderated, 0.0) + math.log(1.0 + exponential(-abs(moderated))) - reward * moderated
    if link == PROBIT:
        moderated = z / math.sqrt(1.0 + v)
        return -reward * log_normal_cdf(moderated) - (1.0 - reward) * log_normal_cdf(-moderated)
    if link == POISSON:  # negative binomial, with the variance phi mean + phi v mean^2
        mean, _ = mean_slope(link, z)
        shape = max(1.0 / max((phi - 1.0) / mean + phi * v, 1.0 / LARGEST_SHAPE), SMALLEST_SHAPE)
        log_ratio = math.log(shape) - math.log(mean)  # log(shape / (shape + mean)) = -log(1 + mean / shape)
        log_miss = -math.log1p(math.exp(-log_ratio)) if log_ratio > 0.0 else log_ratio - math.log1p(math.exp(log_ratio))
        loss = math.lgamma(reward + 1.0) + math.lgamma(shape) - math.lgamma(reward + shape)
        return loss - shape * log_miss - reward * (log_miss - log_ratio)
    if link == CUSTOM:
        moderated = z / math.sqrt(1.0 + MODERATION * v)
        total = 0.0
        for i in range(PANELS + 1):
            factor = 1.0 if i in (0, PANELS) else 2.0 + 2.0 * (i % 2)
            total += factor * mean_slope(link, moderated * i / PANELS)[0]
        return moderated * (total / (3.0 * PANELS) - reward)
    mean, slope = mean_slope(link, z)
    variance = phi * slope * (1.0 + slope * v)
    return 0.5 * (FREEDOM + 1.0) * math.log1p((reward - mean) ** 2 / variance / FREEDOM) + 0.5 * math.log(variance)


@compiled_inner
def limit_reward(link: int, z: float, v: float, reward: float, phi: float) -> float:
    """Return the reward, moved to at most ten standard deviations from its prediction if rewards are unbounded."""
    if link in (LOGISTIC, PROBIT, CUSTOM):
        return reward
    mean, slope = mean_slope(link, z)
    if link == POISSON:  # of z, then of the count
        highest, _ = mean_slope(link, z + LARGEST_ERROR * math.sqrt(phi * v))
        return min(reward, highest + LARGEST_ERROR * math.sqrt(phi * highest))
    width = LARGEST_ERROR * math.sqrt(phi * slope * (1.0 + slope * v))
    return min(max(reward, mean - width), mean + width)


@compiled_inner
def learn_dispersion(link: int, belief: np.void, z: float, v: float, reward: float, weight: float) -> None:
    """Update the dispersion of unbounded rewards by the squared error of a prediction, relative to its variance."""
    if link in (LOGISTIC, PROBIT, CUSTOM):
        return
    mean, slope = mean_slope(link, z)
    error = (reward - mean) / slope
    surprise = min(error * error / (belief["dispersion"] * (1.0 / slope + v)), LARGEST_ERROR * LARGEST_ERROR)
    count = belief["surprises"]
    belief["dispersion"] *= (count + weight * surprise) / (count + weight)
    smallest = 1.0 if link == POISSON else SMALLEST_DISPERSION * belief["first_dispersion"]
    belief["dispersion"] = max(belief["dispersion"], smallest)
    belief["surprises"] = min(count + weight, LONGEST_RECORD)


@compiled_inner
def implicit_steps(link: int, z: np.ndarray, v: np.ndarray, work: np.ndarray) -> None:
    """Set work[MEAN] and work[SLOPE] to mu(y) and mu'(y) at the roots y of y - z + v (mu(y) - r) = 0, for all experts.

    Newton's method runs for all experts at once, each inside a bracket. A step that would leave the bracket, or that is
    more than half as long as the last one, is replaced by a bisection of the bracket.
    """
    y, mean, slope, low, high, last = work[Y], work[MEAN], work[SLOPE], work[LOW], work[HIGH], work[LAST]
    rewards, n = work[REWARD], z.shape[0]
    if link in (POISSON, CUSTOM, UNBOUNDED):  # mu may grow so fast that halving would take too long
        for g in range(n):
            y[g] = proximal_point(link, z[g], v[g], rewards[g])
        mean_slope_array(link, y, mean, slope, n)
        return
    mean_slope_array(link, z, mean, slope, n)
    for g in range(n):
        y[g], other = z[g], z[g] + v[g] * (rewards[g] - mean[g])
        low[g], high[g], last[g] = min(z[g], other), max(z[g], other), math.inf
    for _ in range(MOST_STEPS):
        largest = 0.0
        for g in range(n):
            gap = y[g] - z[g] + v[g] * (mean[g] - rewards[g])
            high[g] = min(high[g], y[g]) if gap > 0.0 else high[g]
            low[g] = low[g] if gap > 0.0 else max(low[g], y[g])
            step = gap / (1.0 + v[g] * slope[g])
            is_close = abs(step) <= CLOSE * (1.0 + abs(y[g]))
            is_inside = low[g] <= y[g] - step <= high[g] and abs(step) <= 0.5 * last[g]
            moved = y[g] - step if is_close or is_inside else 0.5 * (low[g] + high[g])
            last[g] = last[g] if is_close else abs(moved - y[g])
            largest = max(largest, abs(moved - y[g]) - CLOSE * (1.0 + abs(moved)))
            y[g] = moved
        mean_slope_array(link, y, mean, slope, n)
        if largest <= 0.0:
            break


@compiled_inner
def subtract_direction(belief: np.void, rows: np.ndarray, lost: float) -> None:
    """Subtract lost u u' from P, where u is the row DIRECTION."""
    buffer, direction = buffer_of(rows), rows[DIRECTION]
    root, row = math.sqrt(lost / belief["scale"]), buffer[belief["fill"]]
    for j in range(direction.shape[0]):
        row[j] = root * direction[j]
    belief["fill"] += 1
    if belief["fill"] == buffer.shape[0]:
        add_rows(N_of(rows), buffer)
        belief["fill"] = 0


@compiled
def learn_lanes(
    x: np.ndarray, reward: np.ndarray, age: np.ndarray, weight: np.ndarray, mask: np.ndarray, indices: np.ndarray,
    lanes: np.ndarray, beliefs: np.ndarray, dense: np.ndarray, work: np.ndarray,
) -> None:  # fmt: skip
    """Score the prediction of every expert, then learn the reward: theta moves by P x alpha, and P shrinks along P x.

    A reward that is k rounds old is an observation of theta* at that time, which is a^k times the current theta* plus
    noise of variance phi (1 - a^(2k)) q in every coordinate.
    """
    z, v, fades, places = work[Z], work[V], work[FADE], indices[PLACES]
    for i in range(lanes.shape[0]):
        w = weight[i]
        if not mask[i] or w == 0.0:
            continue
        lane, point, link = lanes[i], x[i], lanes[i]["link"]
        count = list_nonzeros(point, places)
        square = sparse_dot(point, point, places, count)
        acting = find_acting(beliefs[i], indices[ORDER], ACTING_SHARE, work[WEIGHTS])
        # Parts of a reward fade earlier losses as much as the whole. The information per round is a mean over rounds:
        # a large weight must not erase the rounds that it is divided by.
        loss_fade, mean_fade = (RECENT, RECENT) if w == 1.0 else (RECENT**w, RECENT ** min(w, 1.0))
        for g in range(beliefs.shape[1]):
            belief, rows = beliefs[i, g], dense[i, g]
            fade = 1.0 if age[i] == 0.0 else belief["a"] ** age[i]
            known = multiply_covariance(belief, rows, point, places, count)
            fades[g] = fade
            v[g] = w * (fade * fade * known + (1.0 - fade * fade) * belief["q"] * square)
            z[g] = fade * sparse_dot(point, rows[THETA], places, count)
            work[REWARD, g] = limit_reward(link, z[g], v[g] / w, reward[i], belief["dispersion"])
        implicit_steps(link, z, v, work)
        for g in range(beliefs.shape[1]):
            belief, rows, mean, slope = beliefs[i, g], dense[i, g], work[MEAN, g], work[SLOPE, g]
            limited = work[REWARD, g]
            if belief["surprises"] >= SETTLED:
                loss = w * prediction_loss(link, z[g], v[g] / w, limited, belief["dispersion"])
                belief["loss"] = loss_fade * belief["loss"] + loss
                belief["run_loss"] += loss
            learn_dispersion(link, belief, z[g], v[g] / w, limited, w)
            alpha = fades[g] * w * (limited - mean)
            if slope * v[g] > 1.0:  # mu is close to the reward, and their difference has lost its digits
                alpha = fades[g] * w * (work[Y, g] - z[g]) / v[g]
            for j in range(rows.shape[1]):
                rows[THETA, j] += alpha * rows[DIRECTION, j]
            information = fades[g] * fades[g] * w * slope
            subtract_direction(belief, rows, information / (1.0 + slope * v[g]))
            belief["least"] /= 1.0 + information * square * belief["least"]
        lane["information"] = mean_fade * lane["information"] + w * work[SLOPE, acting] * square
        lane["rounds"] = mean_fade * lane["rounds"] + lane["waited"]
        lane["waited"] = 0.0


@compiled
def memory_lanes(a: np.ndarray, q: np.ndarray, information: np.ndarray, out: np.ndarray) -> None:
    """Set ``out`` to the effective memory of each lane."""
    for i in range(a.shape[0]):
        out[i] = effective_memory(a[i], q[i], information[i])


@compiled
def rate_lanes(phi: np.ndarray, information: np.ndarray, memory: np.ndarray, d: int, out: np.ndarray) -> None:
    """Set ``out`` to the drift rate of each lane; 0 where there is no information yet."""
    for i in range(phi.shape[0]):
        out[i] = drift_rate(phi[i], information[i], memory[i], d) if information[i] > 0.0 else 0.0
