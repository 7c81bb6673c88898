/* Two messages that arrive are written to the same memory, and the second one replaces what the program may not have read yet. */
#include "common.h"

int main(void)
{
	struct world w = {0};
	int i;

	make(&w, 16, 8);
	CHECK(!receive(&w, piece(w.target, 0, 64)));
#ifdef GOOD
	CHECK(!receive(&w, piece(w.target, 64, 64)));
#else
	CHECK(!receive(&w, piece(w.target, 32, 64)));
#endif
	CHECK(!post(&w, IBV_WR_SEND, piece(w.mr, 0, 64), 0));
	CHECK(!post(&w, IBV_WR_SEND, piece(w.mr, 0, 64), IBV_SEND_SIGNALED));
	for (i = 0; i < 3; i++)
		CHECK(complete(&w) == IBV_WC_SUCCESS);
	end(&w);
	return 0;
}
