"""Check whether a log is sound."""
