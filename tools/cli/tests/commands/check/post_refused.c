/* A request that is refused is not executed, and neither are those behind it in the list. */
#include "common.h"

int main(void)
{
	struct world w = {0};
	struct ibv_sge pieces[2];
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = pieces, .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	make(&w, 16, 8);
	pieces[0] = piece(w.mr, 0, 32);
	pieces[1] = piece(w.mr, 32, 32);
	wr.wr.rdma.remote_addr = (uintptr_t)w.remote;
	wr.wr.rdma.rkey = w.target->rkey;
#ifdef GOOD
	wr.num_sge = 1;
	CHECK(!ibv_post_send(w.qps[0], &wr, &bad));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
#else
	/* More than max_send_sge, and the program does not look at the result. */
	wr.num_sge = 2;
	ibv_post_send(w.qps[0], &wr, &bad);
#endif
	end(&w);
	return 0;
}
