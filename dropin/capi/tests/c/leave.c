/* A program exits without destroying anything, with requests outstanding and threads that wait. */
#include "common.h"

static struct side a, b;

static void *wait_for_completion(void *unused)
{
	struct ibv_cq *cq;
	void *name;
	ibv_get_cq_event(b.channel, &cq, &name);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	(void)argv;
	both(&a, &b);
	message(&a, &b);
	CHECK(!pthread_create(&thread, NULL, wait_for_completion, NULL));
	for (int i = 0; i < 8; i++)
		CHECK(!send_to(&a));
	puts("fine");
	fflush(stdout);
	if (argc > 1)
		_exit(0);
	return 0;
}
