"""``python -m windvane``, and the entry point of the command ``windvane``."""

import sys


def main() -> int:
    """Run the command line in ``sys.argv`` and return its exit code, even if it is interrupted while Python imports."""
    try:
        from windvane.cli import main as run_command
    except KeyboardInterrupt:
        return 130
    return run_command()


if __name__ == "__main__":
    sys.exit(main())
