"""Two RDMA devices in one test.

The fixture `rdma_devices` is a pair of `Device`: adapters with different addresses of the loopback network. Programs that are
started on one of them use it as their only device, and reach programs on the other by its address:

    def test_ping(rdma_devices):
        server, client = rdma_devices
        with server.popen(["rping", "-s", "-C", "5", "-a", server.address, "-p", str(server.port)]) as process:
            client.run(["rping", "-c", "-C", "5", "-a", server.address, "-p", str(server.port)], retry=10)
            assert process.wait(timeout=10) == 0

What a test has started and not waited for is killed at its end. A library that is loaded into the test process itself, such
as pyverbs, needs the environment before Python starts: `python -m verbena run -- pytest`.
"""

import itertools
import os
import socket
import subprocess
import time

import pytest

import verbena

_COUNT = itertools.count()


class Device:
    """An adapter at an address of its own."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.environment = verbena.environment(name=name, device=address)
        with socket.create_server((address, 0)) as probe:
            #: A TCP port of the address that was free when the device was made.
            self.port: int = probe.getsockname()[1]
        self._started: list[subprocess.Popen] = []

    def popen(self, arguments, **options) -> subprocess.Popen:
        """Starts a program on the device; `options` are those of `subprocess.Popen`."""
        options.setdefault("env", self.environment)
        process = subprocess.Popen(arguments, **options)
        self._started.append(process)
        return process

    def run(self, arguments, retry: float = 0, **options) -> subprocess.CompletedProcess:
        """Runs a program to its end; one that fails is an error, unless `check=False`.

        A client may be started before its server listens: for `retry` seconds it is started again when it has failed.
        """
        options.setdefault("env", self.environment)
        check = options.pop("check", True)
        end = time.monotonic() + retry
        while True:
            done = subprocess.run(arguments, check=False, **options)
            if done.returncode == 0 or time.monotonic() >= end:
                break
            time.sleep(0.05)
        if check:
            done.check_returncode()
        return done

    def _end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()


def _addresses() -> tuple[str, str]:
    # Of 127.0.0.0/8 this process takes its own pair, so that tests in parallel (pytest-xdist) do not meet.
    number = (os.getpid() * 2 + next(_COUNT) * 2) % (1 << 22)
    first = (127 << 24) | (1 << 23) | (number << 1)
    return tuple(socket.inet_ntoa((first | end).to_bytes(4, "big")) for end in (0, 1))


@pytest.fixture
def rdma_devices():
    """Two RDMA devices, at different addresses."""
    devices = [Device(f"verbena{i}", address) for i, address in enumerate(_addresses())]
    yield tuple(devices)
    for device in devices:
        device._end()
