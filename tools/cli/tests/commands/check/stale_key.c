/* When a region is deregistered its keys end: requests that name them later fail, or reach memory that got the same key. */
#include "common.h"

int main(void)
{
	struct world w = {0};
	struct ibv_sge sge;

	make(&w, 16, 8);
	sge = piece(w.mr, 0, 64);
#ifdef GOOD
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(w.mr));
#else
	CHECK(!ibv_dereg_mr(w.mr));
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED));
	CHECK(complete(&w) != IBV_WC_SUCCESS);
#endif
	w.mr = NULL;
	end(&w);
	return 0;
}
