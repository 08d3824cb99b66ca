"""Projections of an estimate onto the ball of admissible parameters."""

from windvane.projection.programs import (
    LaneProjections,
    Projection,
    p0,
    p2,
    project_p0,
    project_p0_in_H,
    project_p0_in_V_tilde,
    project_p2,
)

__all__ = [
    "LaneProjections",
    "Projection",
    "p0",
    "p2",
    "project_p0",
    "project_p0_in_H",
    "project_p0_in_V_tilde",
    "project_p2",
]
