# A program that has created its objects and is idle for two seconds (trace.rs reads its system calls).
import os
import time

from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import IBV_QPT_RC
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr

context = Context(name="verbena0")
domain = PD(context)
queue = CQ(context, 16)
cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
pair = QP(domain, QPInitAttr(qp_type=IBV_QPT_RC, scq=queue, rcq=queue, cap=cap))
# Work that their creation has started ends first.
time.sleep(0.5)
os.write(1, b"rest begins\n")
time.sleep(2)
os.write(1, b"rest ends\n")
pair.close()
queue.close()
domain.close()
context.close()
