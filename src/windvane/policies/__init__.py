"""Policies, one algorithm per file.

:mod:`windvane.policies.base` defines the contract and :mod:`windvane.policies.registry` lists the policies. The names
of this package are declared in ``__init__.pyi`` and loaded on first use.

>>> from windvane.policies import BVDGLMUCB
>>> BVDGLMUCB.name
'BVD-GLM-UCB'
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
