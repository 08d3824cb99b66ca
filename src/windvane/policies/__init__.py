"""Policies: :mod:`windvane.policies.base` defines the contract, :mod:`windvane.policies.registry` lists the policies.

>>> from windvane.policies import BVDGLMUCB  # loaded on first use; ``__init__.pyi`` declares the names
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
