/* A completion queue needs an entry for every signaled send and every receive that may complete before it is polled. */
#include "common.h"

int main(void)
{
	struct world w = {0};
	int i;

#ifdef GOOD
	make(&w, 8, 8);
#else
	make(&w, 2, 8);
#endif
	for (i = 0; i < 4; i++)
		CHECK(!receive(&w, piece(w.target, 64 * i, 64)));
	for (i = 0; i < 4; i++) {
		CHECK(!post(&w, IBV_WR_SEND, piece(w.mr, 0, 64), 0));
		CHECK(complete(&w) == IBV_WC_SUCCESS);
	}
	end(&w);
	return 0;
}
