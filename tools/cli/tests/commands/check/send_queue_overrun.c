/* An unsignaled request keeps its place in the send queue until the completion of a later signaled one is polled. */
#include "common.h"

enum { DEPTH = 4, WRITES = 12 };

int main(void)
{
	struct world w = {0};
	int i;

	make(&w, 16, DEPTH);
	for (i = 1; i <= WRITES; i++) {
#ifdef GOOD
		int flags = i % DEPTH ? 0 : IBV_SEND_SIGNALED;
#else
		int flags = i % WRITES ? 0 : IBV_SEND_SIGNALED;
#endif
		/* Here the adapter ends unsignaled requests by itself, and the queue is full for a moment only. */
		while (post(&w, IBV_WR_RDMA_WRITE, piece(w.mr, 0, 64), flags))
			usleep(100);
		if (flags)
			CHECK(complete(&w) == IBV_WC_SUCCESS);
	}
	end(&w);
	return 0;
}
