"""Drift diagnosis: whether the world of a log drifts, how fast, where, and what to do about it."""
