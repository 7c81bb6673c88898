# Verbs that pyverbs has beyond the usual ones: on-demand paging, advice, device memory, parent domains with an allocator, timestamps,
# ignored overruns and vendor options. In the personality iwarp, whose queue pairs rdma_cm connects, everything but the transfers.
import errno
import sys
import time

import pyverbs.device
import pyverbs.enums as e
import pyverbs.mem_alloc as mem
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.device import AllocDmAttr, Context, DM
from pyverbs.mr import DMMR, MR
from pyverbs.pd import PD, ParentDomain, ParentDomainContext, ParentDomainInitAttr
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import ECE, QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SendWR, SGE

ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
ON_DEMAND = ACCESS | e.IBV_ACCESS_ON_DEMAND
PORT = 1
PAGE = 4096
STAMPS = e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
calls = {"alloc": 0, "free": 0}


def alloc(pd, context, size, alignment, resource):
    calls["alloc"] += 1
    if calls["alloc"] % 2:
        return e._IBV_ALLOCATOR_USE_DEFAULT
    return mem.posix_memalign(size, alignment)


def free(pd, context, memory, resource):
    calls["free"] += 1
    mem.free(memory)


def refused(number, call):
    try:
        call()
    except PyverbsRDMAError as error:
        assert error.error_code == number, f"{error}, not {number}"
    else:
        raise AssertionError(f"not refused with {number}")


class End:
    """A queue pair in a parent domain with an allocator, and a completion queue with timestamps."""

    def __init__(self, context):
        self.base = PD(context)
        self.callbacks = ParentDomainContext(self.base, alloc, free)
        self.domain = ParentDomain(context, attr=ParentDomainInitAttr(self.base, self.callbacks))
        init = CqInitAttrEx(
            cqe=16,
            wc_flags=e.IBV_WC_EX_WITH_BYTE_LEN | STAMPS,
            comp_mask=e.IBV_CQ_INIT_ATTR_MASK_FLAGS,
            flags=e.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
        )
        self.queue = CQEX(context, init)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=2, max_recv_sge=2)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=cap, sq_sig_all=1)
        self.pair = QP(self.domain, init)

    def connect(self, context, other):
        route = GlobalRoute(dgid=context.query_gid(PORT, 0), sgid_index=0)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = other.pair.qp_num
        attr.path_mtu = e.IBV_MTU_4096
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer = 12
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        self.pair.to_rts(attr)

    def write(self, wr_id, local, remote, key):
        work = SendWR(wr_id=wr_id, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[local])
        work.set_wr_rdma(key, remote)
        self.pair.post_send(work)

    def completion(self, wr_id):
        until = time.monotonic() + 10
        while self.queue.start_poll(PollCqAttr()) == errno.ENOENT:
            assert time.monotonic() < until, f"no completion of {wr_id}"
        assert (self.queue.wr_id, self.queue.status) == (wr_id, e.IBV_WC_SUCCESS), self.queue.status
        stamps = self.queue.read_timestamp(), self.queue.read_completion_wallclock_ns()
        self.queue.end_poll()
        return stamps


def capabilities(context):
    attr = context.query_device_ex()
    caps = attr.odp_caps
    assert caps.general_caps == e.IBV_ODP_SUPPORT | e.IBV_ODP_SUPPORT_IMPLICIT
    assert caps.rc_odp_caps & e.IBV_ODP_SUPPORT_ATOMIC
    assert attr.hca_core_clock == 1_000_000 and attr.completion_timestamp_mask == 2**64 - 1
    assert attr.max_dm_size == 16 << 20
    return attr


def regions(context, domain):
    """Regions of each kind, their advice and their errors."""
    at = mem.mmap(length=16 * PAGE)
    region = MR(domain, 16 * PAGE, ON_DEMAND, address=at)
    for advice in (
        e._IBV_ADVISE_MR_ADVICE_PREFETCH,
        e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
        e._IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
    ):
        for flags in (0, e._IBV_ADVISE_MR_FLAG_FLUSH):
            domain.advise_mr(advice, flags, [SGE(at, 16 * PAGE, region.lkey)])
    prefetch = e._IBV_ADVISE_MR_ADVICE_PREFETCH
    refused(errno.EFAULT, lambda: domain.advise_mr(prefetch, 0, [SGE(at, 17 * PAGE, region.lkey)]))
    refused(errno.ENOENT, lambda: domain.advise_mr(prefetch, 0, [SGE(at, PAGE, region.lkey ^ 1)]))
    whole = MR(domain, 0, ON_DEMAND, implicit=True)
    device_memory = DM(context, AllocDmAttr(length=8192))
    device_memory.copy_to_dm(100, b"bytes of the device", 19)
    assert device_memory.copy_from_dm(100, 19) == b"bytes of the device"
    refused(errno.EFAULT, lambda: device_memory.copy_from_dm(8190, 3))
    zero_based = DMMR(domain, 4096, ACCESS | e.IBV_ACCESS_ZERO_BASED, device_memory, 64)
    refused(errno.EINVAL, lambda: DMMR(domain, 8192, ACCESS | e.IBV_ACCESS_ZERO_BASED, device_memory, 64))
    refused(errno.EINVAL, lambda: DM(context, AllocDmAttr(length=(16 << 20) + 1)))
    return at, region, whole, device_memory, zero_based


def main():
    iwarp = "iwarp" in sys.argv[1:]
    context = Context(name=pyverbs.device.get_device_list()[0].name.decode())
    capabilities(context)
    a, b = End(context), End(context)
    assert calls["alloc"] == 2, calls
    ece = a.pair.query_ece()
    assert ece.options == 0 and ece.vendor_id
    a.pair.set_ece(ECE(vendor_id=ece.vendor_id, options=7))
    refused(errno.EINVAL, lambda: a.pair.set_ece(ECE(vendor_id=0x15B3, options=1)))
    at, region, whole, device_memory, zero_based = regions(context, b.domain)
    local = MR(a.domain, PAGE, ACCESS)
    if not iwarp:
        a.connect(context, b)
        b.connect(context, a)
        wall, raw = time.time_ns(), context.query_rt_values_ex()[1]
        local.write("by one key for all addresses", 28)
        a.write(1, SGE(local.buf, 28, local.lkey), at + 5, whole.rkey)
        stamp, ns = a.completion(1)
        assert raw <= stamp <= context.query_rt_values_ex()[1], (raw, stamp)
        assert wall <= ns <= time.time_ns(), (wall, ns)
        assert region.read(28, 5) == b"by one key for all addresses"
        a.write(2, SGE(local.buf, 6, local.lkey), 36, zero_based.rkey)
        a.completion(2)
        assert device_memory.copy_from_dm(100, 19) == b"by one" + b"bytes of the device"[6:]
    zero_based.close()
    device_memory.close()
    whole.close()
    region.close()
    for end in (a, b):
        end.pair.close()
        end.queue.close()
    local.close()
    a.domain.close()
    b.domain.close()
    assert calls["free"] == 1, calls
    mem.munmap(at, 16 * PAGE)
    print("all good")


main()
