/* The adapter reads the buffer of a request until it completes, more than once if it sends it again. */
#include "common.h"

int main(void)
{
	struct world w = {0};

	make(&w, 16, 8);
	strcpy(w.memory, "first");
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
#ifdef GOOD
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	strcpy(w.memory, "other");
#else
	strcpy(w.memory, "other");
	CHECK(complete(&w) == IBV_WC_SUCCESS);
#endif
	end(&w);
	return 0;
}
