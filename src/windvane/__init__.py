"""windvane: contextual bandits with generalized-linear rewards whose parameter drifts.

>>> import numpy as np, windvane
>>> policy = windvane.BVDGLMUCB(dim=2, gamma=0.99)
>>> arms = np.array([[[1.0, 0.0], [0.0, 1.0]]])  # [lanes, arms, features]
>>> choice = policy.select(arms)
>>> policy.update(arms[[0], choice], reward=[1.0])

The public names are declared in ``__init__.pyi`` and loaded on first use, so that ``import windvane`` is fast.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
