/* The allocator gives freed memory to another part of the program, where the adapter and its peers can still write. */
#include "common.h"

int main(void)
{
	struct world w = {0};
	struct ibv_mr *mr;
	char *memory = calloc(1, SIZE);

	CHECK(memory);
	make(&w, 16, 8);
	CHECK(mr = ibv_reg_mr(w.pd, memory, SIZE, 0));
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
#ifdef GOOD
	CHECK(!ibv_dereg_mr(mr));
	free(memory);
#else
	free(memory);
	CHECK(!ibv_dereg_mr(mr));
#endif
	end(&w);
	return 0;
}
