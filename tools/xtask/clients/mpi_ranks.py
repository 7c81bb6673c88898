# An MPI program for mpi4py: collectives, messages of many sizes, matched probes and one-sided transfers, every byte
# checked. With the argument `rdma` it also checks that the adapter's own counters have seen the data.
import sys
from array import array

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size
WORDS = "/sys/class/infiniband/verbena0/ports/1/counters/port_xmit_data"


def pattern(source, length):
    unit = bytes((source + k) % 251 for k in range(997))
    return bytearray((unit * (length // len(unit) + 1))[:length])


def allreduce():
    for length in (1, 1000, 100_000):
        mine = array("q", [rank + 1]) * length
        total = array("q", bytes(8 * length))
        comm.Allreduce([mine, MPI.INT64_T], [total, MPI.INT64_T])
        assert total == array("q", [size * (size + 1) // 2]) * length, length


def alltoall():
    for length in (1, 5000):
        mine = array("q", [rank * 1000 + to for to in range(size) for _ in range(length)])
        got = array("q", bytes(8 * size * length))
        comm.Alltoall([mine, MPI.INT64_T], [got, MPI.INT64_T])
        assert got == array("q", [source * 1000 + rank for source in range(size) for _ in range(length)]), length


def messages():
    for length in (0, 1, 16_500, 1 << 20, 16 << 20):
        got = bytearray(length)
        comm.Sendrecv(pattern(rank, length), dest=right, recvbuf=got, source=left)
        assert got == pattern(left, length), length


def matched_probes():
    for length in (16_300, 16_500, 300_000):
        request = comm.Isend(pattern(rank, length), dest=right, tag=9)
        message = MPI.Message.Probe(comm, source=MPI.ANY_SOURCE, tag=9)
        got = bytearray(length)
        message.Recv(got)
        request.Wait()
        assert got == pattern(left, length), length


def one_sided():
    """Put, flush, then replace: what the last one fetches is what was put."""
    turns = 500
    memory = array("q", bytes(8 * size))
    window = MPI.Win.Create(memory, disp_unit=8, comm=comm)
    window.Lock_all()
    wrong = 0
    for turn in range(turns):
        put, new, old = array("q", [turn]), array("q", [-turn - 1]), array("q", [0])
        window.Put([put, MPI.INT64_T], right, rank)
        window.Flush(right)
        window.Get_accumulate([new, MPI.INT64_T], [old, MPI.INT64_T], right, rank, op=MPI.REPLACE)
        window.Flush(right)
        wrong += old[0] != turn
    window.Unlock_all()
    window.Free()
    assert wrong == 0, f"{wrong} of {turns} values are wrong"


for test in (allreduce, alltoall, messages, matched_probes, one_sided):
    test()
    comm.Barrier()

if "rdma" in sys.argv[1:]:
    with open(WORDS) as counter:
        sent = 4 * int(counter.read())
    assert sent > 16 << 20, f"the adapter sent {sent} bytes only"
if rank == 0:
    print("all good:", MPI.Get_library_version().splitlines()[0], flush=True)
