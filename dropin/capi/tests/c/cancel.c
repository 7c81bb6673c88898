/* Threads that wait for events, or that poll and post all the time, are cancelled; afterwards all objects work and can be destroyed. */
#include "common.h"

static struct side a, b;

static void *wait_for_completion(void *unused)
{
	struct ibv_cq *cq;
	void *name;
	ibv_get_cq_event(b.channel, &cq, &name);
	return unused;
}

static void *wait_for_event(void *unused)
{
	struct ibv_async_event event;
	ibv_get_async_event(b.context, &event);
	return unused;
}

static void *work(void *unused)
{
	struct ibv_wc wc;
	(void)unused;
	for (;;) {
		receive(&b);
		send_to(&a);
		while (ibv_poll_cq(a.cq, 1, &wc) > 0)
			;
		while (ibv_poll_cq(b.cq, 1, &wc) > 0)
			;
		ibv_req_notify_cq(b.cq, 0);
		pthread_testcancel();
	}
	return NULL;
}

static void cancel(void *(*call)(void *), int micros)
{
	pthread_t thread;
	void *result;
	CHECK(!pthread_create(&thread, NULL, call, NULL));
	usleep(micros);
	CHECK(!pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
}

int main(void)
{
	both(&a, &b);
	message(&a, &b);
	for (int round = 0; round < 20; round++) {
		cancel(wait_for_completion, 2000);
		cancel(wait_for_event, 2000);
		message(&a, &b);
	}
	for (int round = 0; round < 200; round++)
		cancel(work, round * 10);
	destroy(&a);
	destroy(&b);
	puts("fine");
	return 0;
}
