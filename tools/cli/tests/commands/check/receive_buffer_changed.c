/* The buffer of a receive belongs to the adapter until the receive completes, also the part that the message does not fill. */
#include "common.h"

int main(void)
{
	struct world w = {0};

	make(&w, 16, 8);
	CHECK(!receive(&w, piece(w.target, 0, 256)));
#ifndef GOOD
	w.remote[100] = 1;
#endif
	CHECK(!post(&w, IBV_WR_SEND, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	CHECK(complete(&w) == IBV_WC_SUCCESS);
	w.remote[100] = 1;
	end(&w);
	return 0;
}
