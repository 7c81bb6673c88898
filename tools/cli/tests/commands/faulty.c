/*
 * A program that `verbena faults` is tested with: it registers memory, connects two queue pairs of its own by rdma_cm, posts Writes one after the
 * other, and prints what each step returned. It goes on after errors, as a program with error paths does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITES = 6 };

static struct rdma_event_channel *channel;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	if (rdma_create_qp(id, NULL, &attr))
		die("rdma_create_qp");
}

static struct rdma_cm_event *next_event(void)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(channel, &event))
		die("rdma_get_cm_event");
	return event;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *at, size_t len)
{
	for (;;) {
		struct ibv_mr *mr =
			ibv_reg_mr(pd, at, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

		if (mr)
			return mr;
		printf("reg_mr: %s\n", strerrorname_np(errno));
	}
}

/* Connects; 0 if the peer could not be reached. */
static int dial(struct rdma_cm_id *listener, struct rdma_cm_id **ours, struct rdma_cm_id **theirs)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	int left = 2;

	if (rdma_create_id(channel, ours, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(*ours, NULL, rdma_get_local_addr(listener), 5000))
		die("rdma_resolve_addr");
	rdma_ack_cm_event(next_event());
	if (rdma_resolve_route(*ours, 5000))
		die("rdma_resolve_route");
	rdma_ack_cm_event(next_event());
	make_qp(*ours);
	if (rdma_connect(*ours, &param))
		die("rdma_connect");
	while (left) {
		struct rdma_cm_event *event = next_event();

		switch (event->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			*theirs = event->id;
			make_qp(*theirs);
			if (rdma_accept(*theirs, &param))
				die("rdma_accept");
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			left--;
			break;
		default:
			printf("connect: %s\n", rdma_event_str(event->event));
			rdma_ack_cm_event(event);
			rdma_destroy_qp(*ours);
			rdma_destroy_id(*ours);
			return 0;
		}
		rdma_ack_cm_event(event);
	}
	return 1;
}

int main(void)
{
	static char buffer[4096];
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_cm_id *listener, *ours, *theirs = NULL;
	struct ibv_mr *mr, *target;
	struct ibv_sge sge;
	int n, i, id = 1;

	channel = rdma_create_event_channel();
	if (!channel || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&at) || rdma_listen(listener, 4))
		die("rdma_listen");
	while (!dial(listener, &ours, &theirs))
		;
	mr = reg(ours->pd, buffer, 64);
	target = reg(theirs->pd, buffer + 64, 64);
	sge = (struct ibv_sge){.addr = (uintptr_t)buffer, .length = 64, .lkey = mr->lkey};
	for (i = 0; i < WRITES; i++) {
		struct ibv_send_wr wr = {
			.wr_id = id++, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1}, *bad;
		struct ibv_wc wc;
		int code;

		wr.wr.rdma.remote_addr = (uintptr_t)target->addr;
		wr.wr.rdma.rkey = target->rkey;
		code = ibv_post_send(ours->qp, &wr, &bad);
		if (code) {
			printf("post %d: %s\n", i + 1, strerrorname_np(code));
			continue;
		}
		do
			n = ibv_poll_cq(ours->send_cq, 1, &wc);
		while (!n);
		printf("write %d: %s\n", i + 1, ibv_wc_status_str(wc.status));
	}
	printf("done\n");
	fflush(stdout);
	while (read(0, buffer, 1) > 0)
		;
	return 0;
}
