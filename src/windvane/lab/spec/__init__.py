"""Describe an experiment: its specs, read from TOML or built in Python."""
