"""What a result depends on besides its spec: the code that computes it and the versions of the libraries.

The code is this package, the core and the environments. Everything else only displays results: the other
packages of the lab, the agent, the service, the client and the commands. So a change there leaves results valid.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Collection
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import windvane
from windvane.lab.run.own_code import hash_own_code

if TYPE_CHECKING:
    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec
    from windvane.lab.spec.policy_spec import PolicySpec

PACKAGE = Path(__file__).parent
OTHERS = ("agent", "cli", "client", "lab", "service")  # packages that this one never imports: a contract checks it


def list_versions(parts: Collection[AnyEnvironmentSpec | PolicySpec]) -> dict[str, str]:
    """Return the versions that can change the last bit of a result: of all code, the libraries and the processor.

    ``parts`` are the environments and policies of the result.
    """
    from windvane.kernels.cache import host_processor

    kinds = {getattr(part, "kind", None) for part in parts}
    return {
        "windvane": windvane.__version__,
        "code": _hash_package(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "scipy", "numba", "pyarrow")},
        "processor": host_processor(),
        **({"own code": own} if (own := hash_own_code(parts)) else {}),
        **({"gymnasium": metadata.version("gymnasium")} if "gymnasium" in kinds else {}),
    }


@cache
def _hash_package() -> str:
    """Return a hash of every source file that a number can depend on."""
    root = Path(windvane.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if inside.parts[0] not in OTHERS or path.is_relative_to(PACKAGE):
            digest.update(f"{inside.as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
