# XRC queue pairs of one process, connected by number: two shared receive queues of a domain behind one target, and a queue that is not there.
import os
import tempfile
import time

import pyverbs.device
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttrEx
from pyverbs.srq import SRQ, SrqInitAttrEx
from pyverbs.wr import RecvWR, SendWR, SGE
from pyverbs.xrcd import XRCD, XRCDInitAttr

SIZE = 65536
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
PORT = 1


def attributes(context, peer):
    route = GlobalRoute(dgid=context.query_gid(PORT, 0), sgid_index=0)
    attr = QPAttr(port_num=PORT)
    attr.qp_access_flags = ACCESS
    attr.dest_qp_num = peer.qp_num
    attr.path_mtu = e.IBV_MTU_4096
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
    attr.min_rnr_timer = 12
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
    return attr


def completion(queue, wr_id, status=e.IBV_WC_SUCCESS):
    until = time.monotonic() + 10
    while time.monotonic() < until:
        count, entries = queue.poll(1)
        if count:
            assert (entries[0].wr_id, entries[0].status) == (wr_id, status), f"{entries[0]}"
            return entries[0]
    raise AssertionError(f"no completion of {wr_id} within 10 s")


def shared_queue(context, domain, xrcd, queue):
    init = SrqInitAttrEx(max_wr=16, max_sge=1)
    init.srq_type = e.IBV_SRQT_XRC
    init.pd, init.xrcd, init.cq = domain, xrcd, queue
    init.comp_mask = (
        e.IBV_SRQ_INIT_ATTR_TYPE
        | e.IBV_SRQ_INIT_ATTR_PD
        | e.IBV_SRQ_INIT_ATTR_CQ
        | e.IBV_SRQ_INIT_ATTR_XRCD
    )
    return SRQ(context, init)


def main():
    with Context(name="verbena0") as context, tempfile.TemporaryFile() as file:
        assert context.query_device().device_cap_flags & e.IBV_DEVICE_XRC
        mask = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS
        xrcd = XRCD(context, XRCDInitAttr(mask, os.O_CREAT, file.fileno()))
        domain = PD(context)
        region = MR(domain, SIZE, ACCESS)
        sent, received = CQ(context, 64), [CQ(context, 64), CQ(context, 64)]
        queues = [shared_queue(context, domain, xrcd, queue) for queue in received]
        target = QP(
            context,
            QPInitAttrEx(qp_type=e.IBV_QPT_XRC_RECV, comp_mask=e.IBV_QP_INIT_ATTR_XRCD, xrcd=xrcd),
        )
        initiator = QP(
            context,
            QPInitAttrEx(
                qp_type=e.IBV_QPT_XRC_SEND,
                comp_mask=e.IBV_QP_INIT_ATTR_PD,
                pd=domain,
                scq=sent,
                cap=QPCap(max_send_wr=16, max_recv_wr=0, max_recv_sge=0),
                sq_sig_all=1,
            ),
        )
        target.to_rts(attributes(context, initiator))
        initiator.to_rts(attributes(context, target))

        def send(wr_id, number, length):
            sge = SGE(region.buf, length, region.lkey)
            work = SendWR(wr_id=wr_id, opcode=e.IBV_WR_SEND, num_sge=1, sg=[sge])
            work.set_qp_type_xrc(number)
            initiator.post_send(work)

        numbers = [queue.get_srq_num() for queue in queues]
        for wr_id in range(8):
            at, length = wr_id % 2, 1 + wr_id * 2000
            data = bytes((wr_id * 31 + i * 7) % 256 for i in range(length))
            region.write(data, length)
            place = SGE(region.buf + 32768, length, region.lkey)
            queues[at].post_recv(RecvWR(wr_id=100 + wr_id, num_sge=1, sg=[place]))
            send(wr_id, numbers[at], length)
            completion(sent, wr_id)
            entry = completion(received[at], 100 + wr_id)
            assert (entry.byte_len, entry.qp_num) == (length, target.qp_num), f"{entry}"
            assert region.read(length, 32768) == data, "other bytes"
        send(50, (numbers[0] + 5000) % 2**24, 8)
        completion(sent, 50, e.IBV_WC_REM_INV_REQ_ERR)
        for thing in (initiator, target, *queues, xrcd, sent, *received, region, domain):
            thing.close()
    print("all good")


main()
