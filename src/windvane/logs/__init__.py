"""Logs of decisions: whether a log is sound, whether its world drifts, and what another policy would have earned.

>>> from windvane.logs import evaluate  # loaded on first use; ``__init__.pyi`` declares the names
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
