"""Two RDMA devices in one test: pip install verbena[test], then pytest test_ping.py. rping is in Debian's rdmacm-utils."""


def test_ping(rdma_devices):
    server, client = rdma_devices
    port = str(server.port)
    with server.popen(["rping", "-s", "-C", "5", "-a", server.address, "-p", port]) as process:
        client.run(["rping", "-c", "-C", "5", "-a", server.address, "-p", port], retry=10)
        assert process.wait(timeout=10) == 0
