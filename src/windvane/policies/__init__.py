"""One algorithm a file; :mod:`windvane.policies.base` is the contract, :mod:`windvane.policies.registry` the list."""
