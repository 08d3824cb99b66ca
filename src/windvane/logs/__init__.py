"""Logs of decisions: is a log sound, does its world drift, and what would another policy have earned?

The public names are declared in ``__init__.pyi`` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
