"""Describe an experiment: specs in Python or in TOML files, their errors and their fingerprint."""
