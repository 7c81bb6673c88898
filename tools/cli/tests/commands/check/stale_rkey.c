/* The same for the key of a peer: it must know that it may not use it any more. */
#include "common.h"

int main(void)
{
	struct world w = {0};
	uint32_t rkey;
	struct ibv_mr *target;

	make(&w, 16, 8);
	target = w.target;
	rkey = target->rkey;
#ifdef GOOD
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(target));
	(void)rkey;
#else
	struct ibv_mr copy = {.rkey = rkey};

	CHECK(!ibv_dereg_mr(target));
	w.target = &copy;
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) != IBV_WC_SUCCESS);
#endif
	w.target = NULL;
	end(&w);
	return 0;
}
