"""An RDMA network adapter in software, as a Python package.

The package carries the command `verbena` and its libraries. `python -m verbena run -- PROGRAM` starts a program on it;
with pytest, the fixture `rdma_devices` gives a test two devices (see `verbena.pytest_plugin`).
"""

import os
import pathlib
import shlex
import subprocess

__all__ = ["command", "environment", "libraries"]
__version__ = "@VERSION@"

_FILES = pathlib.Path(__file__).resolve().parent / "files"


def command() -> str:
    """The path of the command `verbena`."""
    return str(_FILES / "bin" / "verbena")


def libraries() -> str:
    """The folder with libibverbs.so.1 and librdmacm.so.1."""
    return str(_FILES / "lib" / "verbena")


def environment(**settings: str) -> dict[str, str]:
    """This process's environment with what `verbena run` adds to it.

    Settings are those of the adapter, such as `device="127.0.0.2"`. An invalid one raises `ValueError`.
    """
    arguments = [f"--set={key}={value}" for key, value in settings.items()]
    made = subprocess.run([command(), "env", *arguments], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise ValueError(made.stderr.strip())
    environment = dict(os.environ)
    for line in made.stdout.splitlines():
        # Such as `export NAME='value';`.
        words = shlex.split(line.removesuffix(";"))
        if len(words) == 2 and words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value
    return environment
