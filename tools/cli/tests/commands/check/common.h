/*
 * What the examples of docs/check.md have in common: two queue pairs of one process that are connected with each other. Each example does one thing wrong, and
 * does it right if it is compiled with -DGOOD; everything else is right in both.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);                   \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

enum { SIZE = 4096 };

struct world {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qps[2];
	struct ibv_mr *mr, *target;
	char *memory, *remote;
};

static inline void connect_to(struct ibv_qp *qp, struct ibv_qp *peer)
{
	union ibv_gid gid;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
	};

	CHECK(!ibv_query_gid(qp->context, 1, 0, &gid));
	attr.ah_attr.grh.dgid = gid;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

/* A device, and a completion queue with so many entries. */
static inline void make_queue(struct world *w, int entries)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0]);
	CHECK(w->context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	CHECK(w->pd = ibv_alloc_pd(w->context));
	CHECK(w->channel = ibv_create_comp_channel(w->context));
	CHECK(w->cq = ibv_create_cq(w->context, entries, NULL, w->channel, 0));
}

/* Two queue pairs with queues for so many requests, in RESET. */
static inline void make_pairs(struct world *w, int depth)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = w->cq,
			.recv_cq = w->cq,
			.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1},
			.qp_type = IBV_QPT_RC,
		};

		CHECK(w->qps[i] = ibv_create_qp(w->pd, &init));
	}
}

/* Memory to send from and receive into, and memory of the peer. */
static inline void make_memory(struct world *w)
{
	CHECK(w->memory = calloc(1, SIZE));
	CHECK(w->remote = calloc(1, SIZE));
	CHECK(w->mr = ibv_reg_mr(w->pd, w->memory, SIZE, IBV_ACCESS_LOCAL_WRITE));
	CHECK(w->target = ibv_reg_mr(w->pd, w->remote, SIZE,
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
}

static inline void join(struct world *w)
{
	to_init(w->qps[0]);
	to_init(w->qps[1]);
	connect_to(w->qps[0], w->qps[1]);
	connect_to(w->qps[1], w->qps[0]);
}

/* Everything, connected. */
static inline void make(struct world *w, int entries, int depth)
{
	make_queue(w, entries);
	make_pairs(w, depth);
	make_memory(w);
	join(w);
}

static inline struct ibv_sge piece(struct ibv_mr *mr, int from, int len)
{
	return (struct ibv_sge){.addr = (uintptr_t)mr->addr + from, .length = len, .lkey = mr->lkey};
}

/* Posts a request to the first queue pair. */
static inline int post(struct world *w, enum ibv_wr_opcode opcode, struct ibv_sge sge, int flags)
{
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = flags},
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)w->remote;
	wr.wr.rdma.rkey = w->target->rkey;
	return ibv_post_send(w->qps[0], &wr, &bad);
}

/* Posts a receive to the second queue pair. */
static inline int receive(struct world *w, struct ibv_sge sge)
{
	struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(w->qps[1], &wr, &bad);
}

/* Sleeps until there are completions, and returns the status of the first of them. */
static inline enum ibv_wc_status complete(struct world *w)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int n;

	while (!(n = ibv_poll_cq(w->cq, 1, &wc))) {
		CHECK(!ibv_req_notify_cq(w->cq, 0));
		/* One may have come before the queue was armed. */
		if ((n = ibv_poll_cq(w->cq, 1, &wc)))
			break;
		CHECK(!ibv_get_cq_event(w->channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(n == 1);
	return wc.status;
}

/* Destroys everything but the regions. */
static inline void end_queues(struct world *w)
{
	int i;

	for (i = 0; i < 2; i++)
		if (w->qps[i])
			CHECK(!ibv_destroy_qp(w->qps[i]));
	CHECK(!ibv_destroy_cq(w->cq));
	CHECK(!ibv_destroy_comp_channel(w->channel));
}

static inline void end(struct world *w)
{
	end_queues(w);
	if (w->mr)
		CHECK(!ibv_dereg_mr(w->mr));
	if (w->target)
		CHECK(!ibv_dereg_mr(w->target));
	CHECK(!ibv_dealloc_pd(w->pd));
	CHECK(!ibv_close_device(w->context));
}
