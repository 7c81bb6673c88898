/* A thread that polls an empty queue uses a processor; one that waits for the queue's event uses none. */
#include "common.h"
#include <time.h>

int main(void)
{
	struct world w = {0};

	make(&w, 16, 8);
#ifndef GOOD
	struct timespec used;
	struct ibv_wc wc;

	do {
		CHECK(!ibv_poll_cq(w.cq, 1, &wc));
		CHECK(!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used));
	} while (!used.tv_sec && used.tv_nsec < 400000000);
#endif
	CHECK(!post(&w, IBV_WR_RDMA_READ, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	end(&w);
	return 0;
}
