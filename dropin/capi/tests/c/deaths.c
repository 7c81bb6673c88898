/* A process exits or is killed right after it has polled the completion of a message: its sender must see success (docs/connections.md). */
#include "common.h"
#include <signal.h>
#include <sys/socket.h>

enum death { RETURNS, LEAVES, KILLED, DEATHS };
enum wait { POLLS, EVENTS, WAITS };

/* Messages and replies before the last message: enough for acknowledgements to be delayed until a reply. */
#define WARM 80

struct told {
	uint32_t qp;
};

static void die(enum death death)
{
	if (death == KILLED)
		kill(getpid(), SIGKILL);
	if (death == LEAVES)
		_exit(0);
	exit(0);
}

static void tell(int to, struct side *side)
{
	struct told told = { .qp = side->qp->qp_num };
	CHECK(write(to, &told, sizeof told) == sizeof told);
}

static uint32_t hear(int from)
{
	struct told told;
	CHECK(read(from, &told, sizeof told) == sizeof told);
	return told.qp;
}

/* Replies to `warm` messages, polls `count` completions of further ones and exits or is killed. */
static void receiver(int peer, enum wait wait, enum death death, int warm, int receives, int count)
{
	static struct side side;
	make(&side);
	if (wait == EVENTS)
		CHECK(!ibv_req_notify_cq(side.cq, 0));
	uint32_t number = hear(peer);
	tell(peer, &side);
	join(&side, number);
	for (int i = 0; i < receives; i++)
		CHECK(!receive(&side));
	CHECK(write(peer, "r", 1) == 1);
	while (warm-- > 0) {
		done(&side);
		CHECK(!receive(&side) && !send_to(&side));
		done(&side);
	}
	if (receives == 0) {
		char byte;
		/* The sender has posted. Its message is refused by a thread of the library, which may wait for a processor. */
		CHECK(read(peer, &byte, 1) == 1);
		usleep(200000);
		die(death);
	}
	while (count > 0) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(side.cq, 1, &wc);
		CHECK(n >= 0);
		if (n == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			count--;
		} else if (wait == EVENTS) {
			struct ibv_cq *cq;
			void *context;
			CHECK(!ibv_get_cq_event(side.channel, &cq, &context));
			ibv_ack_cq_events(cq, 1);
			CHECK(!ibv_req_notify_cq(side.cq, 0));
		}
	}
	die(death);
}

static struct side sender;

/* Posts `sends` to a process that ends after `count`; returns how many succeeded. */
static int round_of(enum wait wait, enum death death, int warm, int sends, int receives, int count)
{
	int pipe[2], status, succeeded = 0;
	char byte;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pipe));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(pipe[0]);
		receiver(pipe[1], wait, death, warm, receives, count);
	}
	close(pipe[1]);
	memset(&sender, 0, sizeof sender);
	make(&sender);
	tell(pipe[0], &sender);
	join(&sender, hear(pipe[0]));
	CHECK(read(pipe[0], &byte, 1) == 1);
	while (warm-- > 0) {
		CHECK(!receive(&sender) && !send_to(&sender));
		done(&sender);
		done(&sender);
	}
	for (int i = 0; i < sends; i++)
		CHECK(!send_to(&sender));
	if (receives == 0)
		CHECK(write(pipe[0], "p", 1) == 1);
	for (int ended = 0; ended < sends;) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(sender.cq, 1, &wc);
		CHECK(n >= 0);
		if (n == 0)
			continue;
		/* In posting order: successful completions come first. */
		CHECK(wc.status != IBV_WC_SUCCESS || succeeded == ended);
		succeeded += wc.status == IBV_WC_SUCCESS;
		ended++;
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(death == KILLED ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(pipe[0]);
	CHECK(!ibv_destroy_qp(sender.qp) && !ibv_destroy_cq(sender.cq));
	CHECK(!ibv_destroy_comp_channel(sender.channel) && !ibv_dereg_mr(sender.mr));
	CHECK(!ibv_dealloc_pd(sender.pd) && !ibv_close_device(sender.context));
	return succeeded;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100, lost = 0;
	for (int i = 0; i < rounds; i++)
		for (enum wait wait = POLLS; wait < WAITS; wait++)
			for (enum death death = RETURNS; death < DEATHS; death++) {
				int one = round_of(wait, death, 0, 1, 1, 1);
				int last = i < 2 ? round_of(wait, death, WARM, 1, 1, 1) : 1;
				int some = 1 + i % 7, of = round_of(wait, death, 0, 8, 8, some);
				if (one != 1 || last != 1 || of < some)
					fprintf(stderr, "wait %d death %d: %d and %d of 1, %d of %d\n", wait, death,
						one, last, of, some);
				lost += one != 1 || last != 1 || of < some;
			}
	CHECK(lost == 0);
	/* Without a receive the message was not delivered, and it completes with an error. */
	for (enum death death = RETURNS; death < DEATHS; death++)
		CHECK(round_of(POLLS, death, 0, 1, 0, 0) == 0);
	puts("fine");
	return 0;
}
