/* Objects that are never destroyed hold memory and numbers of the adapter as long as the process runs. */
#include "common.h"

int main(void)
{
	struct world w = {0};

	make(&w, 16, 8);
#ifdef GOOD
	end(&w);
#else
	end_queues(&w);
#endif
	return 0;
}
