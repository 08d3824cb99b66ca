"""Logs of decisions: check them, diagnose drift, and evaluate other policies on them.

The public names are declared in ``__init__.pyi`` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
