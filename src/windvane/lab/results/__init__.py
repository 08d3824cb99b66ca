"""Store the results of experiments, read them and compare them."""
