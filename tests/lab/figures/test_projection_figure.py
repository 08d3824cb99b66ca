"""The projection: the truth, the estimate and the projected estimate about the set Theta."""

from __future__ import annotations

import numpy as np

from support import sample_results as samples
from windvane.lab.figures.description import Arrows, Disc, Strip
from windvane.lab.figures.projection_figure import MOST_DOTS, projection_figure


def rows(mark):
    return np.stack([mark.x, mark.y], axis=1)


def test_the_plane_holds_truth_estimates_and_projections():
    path = samples.theta_path()
    plane, _ = projection_figure(path, title="BVD-GLM-UCB").panels
    (star,), (hat,), (tilde,) = (plane.marks_with(role) for role in ("theta_star", "theta_hat", "theta_tilde"))
    np.testing.assert_array_equal(rows(star), path.theta_star)
    assert {tuple(row) for row in rows(hat)} <= {tuple(row) for row in path.theta_hat}
    assert len(hat.x) <= MOST_DOTS
    outside = np.linalg.norm(rows(hat), axis=1) > path.S
    assert outside.sum() == len(tilde.x) > 0  # each estimate outside Theta is drawn with its projection
    np.testing.assert_allclose(np.linalg.norm(rows(tilde), axis=1), path.S)
    (disc,) = (mark for mark in plane.marks if isinstance(mark, Disc))
    assert (disc.radius, disc.name) == (path.S, "Θ (norm ≤ 1)")
    links, arrow = (mark for mark in plane.marks if isinstance(mark, Arrows))
    np.testing.assert_array_equal(links.tails, rows(hat)[outside])
    np.testing.assert_array_equal(links.heads, rows(tilde))
    assert (links.has_heads, arrow.has_heads) == (False, True)


def test_colours_tell_the_round_on_one_scale():
    path = samples.theta_path()
    for panel in projection_figure(path).panels:
        for role in ("theta_hat", "theta_tilde"):
            (mark,) = panel.marks_with(role)
            assert mark.last_round == path.rounds[-1]
            assert set(mark.rounds) <= set(path.rounds)


def test_the_frame_holds_the_excursions_and_all_of_theta():
    path = samples.theta_path()
    plane, _ = projection_figure(path).panels
    for values, axis in zip(path.theta_hat.T, (plane.x, plane.y), strict=True):
        assert axis.low < min(values.min(), -path.S)
        assert max(values.max(), path.S) < axis.high
    assert plane.is_square


def test_norms_over_rounds_and_the_share_outside():
    path = samples.theta_path()
    _, norms = projection_figure(path).panels
    (trail,) = norms.marks_with("trail")
    np.testing.assert_array_equal(trail.x, path.rounds)
    np.testing.assert_array_equal(trail.y, np.linalg.norm(path.theta_hat, axis=1))
    share = np.mean(np.linalg.norm(path.theta_hat, axis=1) > path.S)
    assert norms.title == f"This run: θ̂ outside Θ in {100 * share:.0f} % of rounds"
    (ground,) = (mark for mark in norms.marks if isinstance(mark, Strip))
    assert (ground.axis, ground.low, ground.high) == ("y", 0.0, path.S)


def test_one_dimension_goes_over_time():
    path = samples.theta_path(dim=1)
    (panel,) = projection_figure(path).panels
    (star,) = panel.marks_with("theta_star")
    np.testing.assert_array_equal(rows(star), np.stack([path.rounds, path.theta_star[:, 0]], axis=1))
    (ground,) = (mark for mark in panel.marks if isinstance(mark, Strip))
    assert (ground.low, ground.high, ground.name) == (-path.S, path.S, "Θ (norm ≤ 1)")
    assert "outside Θ" in panel.title


def test_more_coordinates_are_told():
    plane, _ = projection_figure(samples.theta_path(dim=5), title="x").panels
    assert "first two of 5 coordinates" in plane.x.label


def test_what_is_unknown_is_left_out():
    path = samples.theta_path(projects=False)
    plane, _ = projection_figure(path).panels
    assert not plane.marks_with("theta_tilde")
    path.theta_star[:] = np.nan  # a labelled data stream
    plane, norms = projection_figure(path).panels
    assert not plane.marks_with("theta_star")
    assert not norms.marks_with("theta_star")
    assert not any(isinstance(mark, Arrows) and mark.has_heads for mark in plane.marks)
    path.theta_hat[:] = np.nan
    plane, norms = projection_figure(path).panels
    assert not plane.marks_with("theta_hat")
    assert not norms.title


def test_estimates_beyond_the_frame_are_counted():
    path = samples.theta_path()
    path.theta_hat[:7] = 50.0
    assert projection_figure(path).panels[0].title == "7 estimates lie beyond the frame"


def test_a_resting_parameter_is_a_dot():
    path = samples.theta_path()
    path.theta_star[:] = [0.5, 0.5]
    (dot,) = projection_figure(path).panels[0].marks_with("rest")
    assert rows(dot).tolist() == [[0.5, 0.5]]
