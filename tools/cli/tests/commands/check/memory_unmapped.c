/* Registered memory stays mapped until it is deregistered: an adapter would go on using the old pages. */
#include "common.h"

int main(void)
{
	struct world w = {0};
	struct ibv_mr *mr;
	void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	make(&w, 16, 8);
	CHECK(mr = ibv_reg_mr(w.pd, memory, SIZE, 0));
	CHECK(!post(&w, IBV_WR_RDMA_WRITE, piece(mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
#ifdef GOOD
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!munmap(memory, SIZE));
#else
	CHECK(!munmap(memory, SIZE));
	CHECK(!ibv_dereg_mr(mr));
#endif
	end(&w);
	return 0;
}
