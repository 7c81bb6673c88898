/* A region that is only sent from needs no rights; every right is one that a wrong or hostile request can use. */
#include "common.h"

int main(void)
{
	static char data[SIZE];
	struct world w = {0};
	struct ibv_mr *mr;
#ifdef GOOD
	int access = 0;
#else
	int access = IBV_ACCESS_LOCAL_WRITE;
#endif

	make(&w, 16, 8);
	CHECK(mr = ibv_reg_mr(w.pd, data, SIZE, access));
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(mr, 0, 64), 0));
	CHECK(!post(&w, IBV_WR_RDMA_READ, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(mr));
	end(&w);
	return 0;
}
