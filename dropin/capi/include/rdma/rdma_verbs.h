/*
 * Verbs on the queue pair of an identifier, with one buffer each: short forms for programs that use
 * rdma_create_ep. All but the first three are functions in this header; they return 0 (or the number
 * of completions), or -1 with errno set.
 */
#ifndef VERBENA_RDMA_RDMA_VERBS_H
#define VERBENA_RDMA_RDMA_VERBS_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The shared receive queue of an identifier. */
int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);
void rdma_destroy_srq(struct rdma_cm_id *id);

/* A verb returns the error number, and these functions set errno. */
static inline int verbena_minus_one(int error)
{
	if (!error)
		return 0;
	errno = error < 0 ? errno : error;
	return -1;
}

/* Memory. */

static inline struct ibv_mr *rdma_reg_msgs(struct rdma_cm_id *id, void *addr, size_t length)
{
	return ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE);
}

static inline struct ibv_mr *rdma_reg_read(struct rdma_cm_id *id, void *addr, size_t length)
{
	return ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

static inline struct ibv_mr *rdma_reg_write(struct rdma_cm_id *id, void *addr, size_t length)
{
	return ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static inline int rdma_dereg_mr(struct ibv_mr *mr)
{
	return verbena_minus_one(ibv_dereg_mr(mr));
}

/* Work requests. The context is the wr_id of the completion. */

static inline int rdma_post_recvv(struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge)
{
	struct ibv_recv_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = (uintptr_t)context;
	wr.sg_list = sgl;
	wr.num_sge = nsge;
	if (id->srq)
		return verbena_minus_one(ibv_post_srq_recv(id->srq, &wr, &bad));
	return verbena_minus_one(ibv_post_recv(id->qp, &wr, &bad));
}

static inline int verbena_post(struct rdma_cm_id *id, void *context, enum ibv_wr_opcode opcode,
		struct ibv_sge *sgl, int nsge, int flags, uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_send_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = (uintptr_t)context;
	wr.sg_list = sgl;
	wr.num_sge = nsge;
	wr.opcode = opcode;
	wr.send_flags = (unsigned int)flags;
	wr.wr.rdma.remote_addr = remote_addr;
	wr.wr.rdma.rkey = rkey;
	return verbena_minus_one(ibv_post_send(id->qp, &wr, &bad));
}

static inline int rdma_post_sendv(struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge,
		int flags)
{
	return verbena_post(id, context, IBV_WR_SEND, sgl, nsge, flags, 0, 0);
}

static inline int rdma_post_readv(struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge,
		int flags, uint64_t remote_addr, uint32_t rkey)
{
	return verbena_post(id, context, IBV_WR_RDMA_READ, sgl, nsge, flags, remote_addr, rkey);
}

static inline int rdma_post_writev(struct rdma_cm_id *id, void *context, struct ibv_sge *sgl, int nsge,
		int flags, uint64_t remote_addr, uint32_t rkey)
{
	return verbena_post(id, context, IBV_WR_RDMA_WRITE, sgl, nsge, flags, remote_addr, rkey);
}

/* One buffer; data that is sent inline needs no region. */
static inline struct ibv_sge verbena_sge(void *addr, size_t length, struct ibv_mr *mr)
{
	struct ibv_sge sge;

	sge.addr = (uintptr_t)addr;
	sge.length = (uint32_t)length;
	sge.lkey = mr ? mr->lkey : 0;
	return sge;
}

static inline int rdma_post_recv(struct rdma_cm_id *id, void *context, void *addr, size_t length,
		struct ibv_mr *mr)
{
	struct ibv_sge sge = verbena_sge(addr, length, mr);

	return rdma_post_recvv(id, context, &sge, 1);
}

static inline int rdma_post_send(struct rdma_cm_id *id, void *context, void *addr, size_t length,
		struct ibv_mr *mr, int flags)
{
	struct ibv_sge sge = verbena_sge(addr, length, mr);

	return rdma_post_sendv(id, context, &sge, 1, flags);
}

static inline int rdma_post_read(struct rdma_cm_id *id, void *context, void *addr, size_t length,
		struct ibv_mr *mr, int flags, uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = verbena_sge(addr, length, mr);

	return rdma_post_readv(id, context, &sge, 1, flags, remote_addr, rkey);
}

static inline int rdma_post_write(struct rdma_cm_id *id, void *context, void *addr, size_t length,
		struct ibv_mr *mr, int flags, uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = verbena_sge(addr, length, mr);

	return rdma_post_writev(id, context, &sge, 1, flags, remote_addr, rkey);
}

/* Waits for a completion: polls, arms, polls once more, and then sleeps on the channel. */
static inline int verbena_wait(struct ibv_cq *cq, struct ibv_comp_channel *channel, struct ibv_wc *wc)
{
	struct ibv_cq *raised;
	void *context;
	int found;

	for (;;) {
		found = ibv_poll_cq(cq, 1, wc);
		if (found)
			break;
		if (verbena_minus_one(ibv_req_notify_cq(cq, 0)))
			return -1;
		found = ibv_poll_cq(cq, 1, wc);
		if (found)
			break;
		if (ibv_get_cq_event(channel, &raised, &context))
			return -1;
		ibv_ack_cq_events(raised, 1);
	}
	return found < 0 ? verbena_minus_one(found) : found;
}

static inline int rdma_get_send_comp(struct rdma_cm_id *id, struct ibv_wc *wc)
{
	return verbena_wait(id->send_cq, id->send_cq_channel, wc);
}

static inline int rdma_get_recv_comp(struct rdma_cm_id *id, struct ibv_wc *wc)
{
	return verbena_wait(id->recv_cq, id->recv_cq_channel, wc);
}

#ifdef __cplusplus
}
#endif

#endif
