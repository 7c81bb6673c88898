"""The fixture of the plugin, with rping and without: run by `cargo xtask package wheel --check`."""

import subprocess

import pytest

import verbena


def test_ping_between_two_devices(rdma_devices):
    server, client = rdma_devices
    assert server.address != client.address
    port = str(server.port)
    with server.popen(["rping", "-s", "-C", "5", "-a", server.address, "-p", port]) as process:
        client.run(["rping", "-c", "-C", "5", "-a", server.address, "-p", port], retry=10)
        assert process.wait(timeout=10) == 0


def test_failure_of_a_program_is_an_error(rdma_devices):
    with pytest.raises(subprocess.CalledProcessError):
        rdma_devices[0].run(["false"])
    assert rdma_devices[0].run(["false"], check=False).returncode == 1


def test_invalid_setting_is_named():
    with pytest.raises(ValueError, match="crc"):
        verbena.environment(crc="perhaps")
