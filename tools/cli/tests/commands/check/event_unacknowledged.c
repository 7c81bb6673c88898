/* Destroying an object waits until every event about it that the program has read is acknowledged. */
#include "common.h"

int main(void)
{
	struct world w = {0};
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	make(&w, 16, 8);
	CHECK(!ibv_req_notify_cq(w.cq, 0));
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(!ibv_get_cq_event(w.channel, &cq, &context));
	CHECK(ibv_poll_cq(w.cq, 1, &wc) == 1);
#ifdef GOOD
	ibv_ack_cq_events(cq, 1);
#endif
	end(&w);
	return 0;
}
