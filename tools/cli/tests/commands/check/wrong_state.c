/* Sends can be posted from RTS on, receives from INIT on; adapters refuse earlier ones, or lose them. */
#include "common.h"

int main(void)
{
	struct world w = {0};

	make_queue(&w, 16);
	make_pairs(&w, 8);
	make_memory(&w);
#ifndef GOOD
	receive(&w, piece(w.target, 0, 64));
	post(&w, IBV_WR_SEND, piece(w.mr, 0, 64), IBV_SEND_SIGNALED);
#endif
	join(&w);
	CHECK(!receive(&w, piece(w.target, 64, 64)));
	CHECK(!post(&w, IBV_WR_SEND, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	end(&w);
	return 0;
}
