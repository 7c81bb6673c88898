/* A thread that polls an empty queue uses a processor; one that waits for the queue's event uses none. */
#include "common.h"
#include <time.h>

int main(void)
{
	struct world w = {0};
	time_t until = time(NULL) + 2;
	struct ibv_wc wc;

	make(&w, 16, 8);
#ifdef GOOD
	(void)until;
	(void)wc;
#else
	while (time(NULL) < until)
		CHECK(!ibv_poll_cq(w.cq, 1, &wc));
#endif
	CHECK(!post(&w, IBV_WR_RDMA_READ, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	end(&w);
	return 0;
}
