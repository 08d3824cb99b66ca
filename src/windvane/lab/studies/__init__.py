"""Experiments that come with windvane: the paper's, the benchmarks and the studies."""
