/* What two outstanding Reads leave in memory that both write is not defined. */
#include "common.h"

int main(void)
{
	struct world w = {0};

	make(&w, 16, 8);
	CHECK(!post(&w, IBV_WR_RDMA_READ, piece(w.mr, 0, 64), 0));
#ifdef GOOD
	CHECK(!post(&w, IBV_WR_RDMA_READ, piece(w.mr, 64, 64), IBV_SEND_SIGNALED));
#else
	CHECK(!post(&w, IBV_WR_RDMA_READ, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
#endif
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	end(&w);
	return 0;
}
