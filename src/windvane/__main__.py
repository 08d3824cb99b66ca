"""``python -m windvane``: the same as the command ``windvane``."""

import sys

from windvane.cli import main

if __name__ == "__main__":
    sys.exit(main())
