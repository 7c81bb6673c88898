/* Helpers of the C test programs: a connection of a process with itself, and checks that print where they failed. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                              \
	do {                                                                                     \
		if (!(what)) {                                                                   \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			_exit(1);                                                                \
		}                                                                                \
	} while (0)

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[4096];
};

static inline struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline void make(struct side *side)
{
	side->context = open_device();
	CHECK(side->pd = ibv_alloc_pd(side->context));
	CHECK(side->channel = ibv_create_comp_channel(side->context));
	CHECK(side->cq = ibv_create_cq(side->context, 16, NULL, side->channel, 0));
	CHECK(side->mr = ibv_reg_mr(side->pd, side->memory, sizeof side->memory,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.cap = { 8, 8, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};
	CHECK(side->qp = ibv_create_qp(side->pd, &init));
}

/* Connects, with these access rights for the peer and so many reads in flight in each direction. */
static inline void join_with(struct side *side, uint32_t peer, unsigned access, uint8_t reads)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
	CHECK(!ibv_modify_qp(side->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.min_rnr_timer = 1;
	attr.max_dest_rd_atomic = reads;
	CHECK(!ibv_query_gid(side->context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(side->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = reads;
	CHECK(!ibv_modify_qp(side->qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Connects for messages only. */
static inline void join(struct side *side, uint32_t peer)
{
	join_with(side, peer, 0, 0);
}

static inline void both(struct side *a, struct side *b)
{
	make(a);
	make(b);
	join(a, b->qp->qp_num);
	join(b, a->qp->qp_num);
}

static inline int receive(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)side->memory, 8, side->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	return ibv_post_recv(side->qp, &wr, &bad);
}

static inline int send_to(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)side->memory + 64, 8, side->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED
	}, *bad;
	return ibv_post_send(side->qp, &wr, &bad);
}

static inline void done(struct side *side)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(side->cq, 1, &wc)) == 0)
		;
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
}

/* One message from one to the other. */
static inline void message(struct side *from, struct side *to)
{
	CHECK(!receive(to));
	CHECK(!send_to(from));
	done(to);
	done(from);
}

static inline void destroy(struct side *side)
{
	CHECK(!ibv_destroy_qp(side->qp));
	CHECK(!ibv_dereg_mr(side->mr));
	CHECK(!ibv_destroy_cq(side->cq));
	CHECK(!ibv_destroy_comp_channel(side->channel));
	CHECK(!ibv_dealloc_pd(side->pd));
	CHECK(!ibv_close_device(side->context));
}

/* The child's exit code, or 255 for a signal. */
static inline int joined(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}
