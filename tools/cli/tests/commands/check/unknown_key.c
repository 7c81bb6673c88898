/* The lkey of a request is that of a region of this process; rkey and lkey of adapters differ, and no field may be left out. */
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
#else
	sge.lkey = 0;
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED));
	CHECK(complete(&w) != IBV_WC_SUCCESS);
#endif
	end(&w);
	return 0;
}
