"""`python -m verbena …` and the script `verbena`: the command itself, in place of this process."""

import os
import sys

import verbena


def main() -> None:
    """Returns only if the command cannot be started."""
    os.execv(verbena.command(), ["verbena", *sys.argv[1:]])


if __name__ == "__main__":
    main()
