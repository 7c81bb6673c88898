/* A completion that is not polled keeps its place in the queue, and its request has no result. */
#include "common.h"

int main(void)
{
	struct world w = {0};

	make(&w, 16, 8);
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(!post(&w, IBV_WR_RDMA_READ, piece(w.mr, 64, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
#ifdef GOOD
	CHECK(complete(&w) == IBV_WC_SUCCESS);
#else
	/* There is one more, by an event: requests complete in order. */
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_req_notify_cq(w.cq, 0));
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(!ibv_get_cq_event(w.channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
#endif
	end(&w);
	return 0;
}
