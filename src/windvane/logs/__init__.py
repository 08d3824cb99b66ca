"""Logs of decisions: whether a log is sound, whether its world drifts, what another policy would have earned.

The public names are declared in ``__init__.pyi`` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
