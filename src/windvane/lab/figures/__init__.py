"""Draw results."""
