# Two NIXL agents with the UCX backend: `target PORT` offers memory, `initiator HOST PORT` writes it, reads it back, and
# tells the target, which compares every byte. The agents' metadata travels over a TCP connection of the script's own.
import socket
import struct
import sys
import time

import numpy
from nixl_cu12 import nixl_agent, nixl_agent_config

SIZE = 32 << 20
PATIENCE = 40


def receive(connection):
    def exactly(length):
        data = b""
        while len(data) < length:
            part = connection.recv(length - len(data))
            assert part, "the peer is gone"
            data += part
        return data

    return exactly(*struct.unpack("!I", exactly(4)))


def send(connection, data):
    connection.sendall(struct.pack("!I", len(data)) + data)


def pattern(seed):
    return (numpy.arange(SIZE, dtype=numpy.uint32) * 7 + seed).astype(numpy.uint8)


def agent(name, memory):
    made = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    made.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
    return made


def transfer(initiator, operation, local, remote, peer):
    request = initiator.initialize_xfer(
        operation,
        initiator.get_xfer_descs([(local, SIZE, 0)], "DRAM"),
        initiator.get_xfer_descs([(remote, SIZE, 0)], "DRAM"),
        peer,
    )
    state = initiator.transfer(request)
    until = time.monotonic() + PATIENCE
    while state == "PROC" and time.monotonic() < until:
        state = initiator.check_xfer_state(request)
    assert state == "DONE", f"{operation} ended as {state}"
    initiator.release_xfer_handle(request)


def target(port):
    listener = socket.create_server(("", port))
    memory = pattern(1)
    made = agent("target", memory)
    connection, _ = listener.accept()
    send(connection, made.get_agent_metadata())
    send(connection, struct.pack("!Q", memory.ctypes.data))
    assert receive(connection) == b"written"
    assert (memory == pattern(2)).all(), "what was written is not there"
    send(connection, b"seen")
    assert receive(connection) == b"bye"
    print("all good")


def initiator(host, port):
    connection = socket.create_connection((host, port))
    memory = numpy.zeros(SIZE, dtype=numpy.uint8)
    made = agent("initiator", memory)
    peer = made.add_remote_agent(receive(connection))
    (remote,) = struct.unpack("!Q", receive(connection))
    local = memory.ctypes.data
    transfer(made, "READ", local, remote, peer)
    assert (memory == pattern(1)).all(), "what was read is not what was there"
    memory[:] = pattern(2)
    transfer(made, "WRITE", local, remote, peer)
    send(connection, b"written")
    assert receive(connection) == b"seen"
    with open("/sys/class/infiniband/verbena0/ports/1/counters/port_xmit_data") as counter:
        sent = 4 * int(counter.read())
    assert sent > SIZE, f"the adapter sent {sent} bytes only"
    send(connection, b"bye")
    print("all good")


if sys.argv[1] == "target":
    target(int(sys.argv[2]))
else:
    initiator(sys.argv[2], int(sys.argv[3]))
