"""Experiments: a spec says which policies run in which environments; results are stored, compared and drawn.

>>> from windvane.environments import BallArms, Rotation
>>> from windvane.lab import EnvironmentSpec, PolicySpec, Spec, simulate
>>> world = EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms())
>>> spec = Spec(environments=[world], policies=[PolicySpec("BVD-GLM-UCB")], runs=50, horizon=3000)
>>> results = simulate(spec, "results")                                          # doctest: +SKIP
>>> windvane.lab.open("results").frame("runs")                                   # doctest: +SKIP

The public names are declared in ``__init__.pyi`` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.remove("open")  # `from windvane.lab import *` must not replace the builtin
