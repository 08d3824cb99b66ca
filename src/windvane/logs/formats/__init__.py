"""Readers of the formats in which logs are written, one module each."""
