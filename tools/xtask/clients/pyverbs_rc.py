# Two RC queue pairs of one process, connected by number: every kind of transfer once, and every byte checked.
import sys
import time

import pyverbs.device
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import *
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import RecvWR, SendWR, SGE

SIZE = 65536
ACCESS = (
    IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
)
PORT = 1


def pattern(seed, length):
    return bytes((seed * 31 + i * 7) % 256 for i in range(length))


class End:
    """One queue pair with its completion queue and memory."""

    def __init__(self, context, shared=False):
        self.domain = PD(context)
        self.queue = CQ(context, 64)
        self.region = MR(self.domain, SIZE, ACCESS)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=2, max_recv_sge=2)
        init = QPInitAttr(qp_type=IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=cap, sq_sig_all=1)
        self.shared = None
        if shared:
            self.shared = SRQ(self.domain, SrqInitAttr(SrqAttr(max_wr=16, max_sge=2)))
            init.srq = self.shared
        self.pair = QP(self.domain, init)

    def connect(self, context, other, psn, other_psn):
        route = GlobalRoute(dgid=context.query_gid(PORT, 0), sgid_index=0)
        address = AHAttr(gr=route, is_global=1, port_num=PORT)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = other.pair.qp_num
        attr.path_mtu = context.query_port(PORT).active_mtu
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer = 12
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
        attr.sq_psn, attr.rq_psn = psn, other_psn
        attr.ah_attr = address
        self.pair.to_rts(attr)

    def receive(self, offset, length, wr_id):
        sge = SGE(self.region.buf + offset, length, self.region.lkey)
        work = RecvWR(wr_id=wr_id, num_sge=1, sg=[sge])
        (self.shared or self.pair).post_recv(work)

    def post(self, opcode, offset, length, wr_id, change=None, **further):
        sge = SGE(self.region.buf + offset, length, self.region.lkey)
        work = SendWR(wr_id=wr_id, opcode=opcode, num_sge=1, sg=[sge], **further)
        if change:
            change(work)
        self.pair.post_send(work)

    def completion(self, wr_id, opcode, length=None):
        until = time.monotonic() + 10
        while time.monotonic() < until:
            count, entries = self.queue.poll(1)
            if count:
                entry = entries[0]
                assert entry.status == IBV_WC_SUCCESS, f"status {entry.status} of {wr_id}"
                assert (entry.wr_id, entry.opcode) == (wr_id, opcode), f"{entry}"
                assert length is None or entry.byte_len == length, f"{entry}"
                return entry
        raise AssertionError(f"no completion of {wr_id} within 10 s")

    def holds(self, data, offset):
        found = self.region.read(len(data), offset)
        assert found == data, f"other bytes at {offset}"

    def close(self):
        for thing in (self.pair, self.shared, self.region, self.queue, self.domain):
            if thing is not None:
                thing.close()


def joined(context, shared=False):
    left, right = End(context), End(context, shared)
    left.connect(context, right, 17, 42)
    right.connect(context, left, 42, 17)
    return left, right


def messages(left, right):
    for wr_id, length in enumerate((1, 64, 4096, 20000)):
        data = pattern(length, length)
        right.receive(0, SIZE, wr_id)
        left.region.write(data, length)
        left.post(IBV_WR_SEND, 0, length, wr_id)
        left.completion(wr_id, IBV_WC_SEND)
        right.completion(wr_id, IBV_WC_RECV, length)
        right.holds(data, 0)
    right.receive(0, SIZE, 9)
    left.post(IBV_WR_SEND_WITH_IMM, 0, 8, 9, imm_data=0x12345678)
    left.completion(9, IBV_WC_SEND)
    entry = right.completion(9, IBV_WC_RECV, 8)
    assert entry.wc_flags & IBV_WC_WITH_IMM and entry.imm_data == 0x12345678, f"{entry}"


def one_sided(left, right):
    key, base = right.region.rkey, right.region.buf
    remote = lambda work: work.set_wr_rdma(key, base + 100)
    data = pattern(5, 30000)
    left.region.write(data, len(data))
    left.post(IBV_WR_RDMA_WRITE, 0, len(data), 21, remote)
    left.completion(21, IBV_WC_RDMA_WRITE)
    right.holds(data, 100)
    right.receive(0, 0, 22)
    left.post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, len(data), 22, remote, imm_data=7)
    left.completion(22, IBV_WC_RDMA_WRITE)
    right.completion(22, IBV_WC_RECV_RDMA_WITH_IMM, len(data))
    data = pattern(6, 30000)
    right.region.write(data, len(data), 100)
    left.post(IBV_WR_RDMA_READ, 0, len(data), 23, remote)
    left.completion(23, IBV_WC_RDMA_READ)
    left.holds(data, 0)


def atomics(left, right):
    key, base = right.region.rkey, right.region.buf
    number = lambda end, offset: int.from_bytes(end.region.read(8, offset), sys.byteorder)
    right.region.write((40).to_bytes(8, sys.byteorder), 8)
    add = lambda work: work.set_wr_atomic(key, base, 2)
    left.post(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 31, add)
    left.completion(31, IBV_WC_FETCH_ADD)
    assert (number(left, 0), number(right, 0)) == (40, 42)
    swap = lambda work: work.set_wr_atomic(key, base, 42, 99)
    left.post(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8, 32, swap)
    left.completion(32, IBV_WC_COMP_SWAP)
    assert (number(left, 0), number(right, 0)) == (42, 99)


def main():
    names = [device.name.decode() for device in pyverbs.device.get_device_list()]
    assert "verbena0" in names, f"{names}"
    with Context(name="verbena0") as context:
        limits = context.query_device()
        assert limits.max_qp > 0 and limits.max_sge > 0
        assert context.query_port(PORT).state == IBV_PORT_ACTIVE
        for shared in (False, True):
            left, right = joined(context, shared)
            messages(left, right)
            if not shared:
                one_sided(left, right)
                atomics(left, right)
            attr, _ = left.pair.query(IBV_QP_STATE | IBV_QP_DEST_QPN)
            assert attr.qp_state == IBV_QPS_RTS and attr.dest_qp_num == right.pair.qp_num
            left.close()
            right.close()
        # Counters are files with what this process's adapter has sent and received.
        for name in ("counters/port_xmit_data", "counters/port_rcv_packets", "hw_counters/sent_bytes"):
            with open(f"/sys/class/infiniband/verbena0/ports/1/{name}") as file:
                assert int(file.read()) > 0, name
    print("all good")


main()
