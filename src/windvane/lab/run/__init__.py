"""Run the cells of an experiment. Every number of a result is computed here, in the core or in the environments."""
