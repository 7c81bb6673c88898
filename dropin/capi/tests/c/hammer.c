/* Threads create and destroy objects of one context and of their own, as fast as they can. */
#include "common.h"

static struct ibv_context *shared;
static int rounds = 150;

static void *hammer(void *own)
{
	for (int round = 0; round < rounds; round++) {
		struct ibv_context *context = own ? open_device() : shared;
		char memory[256];
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd);
		struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
		CHECK(channel);
		struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0);
		CHECK(cq);
		struct ibv_srq_init_attr attr = { .attr = { 4, 1, 0 } };
		struct ibv_srq *srq = ibv_create_srq(pd, &attr);
		CHECK(srq);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr);
		struct ibv_qp_init_attr init = {
			.send_cq = cq, .recv_cq = cq, .srq = round & 1 ? srq : NULL,
			.cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC,
		};
		struct ibv_qp *qp = ibv_create_qp(pd, &init);
		CHECK(qp);
		CHECK(!ibv_req_notify_cq(cq, 0));
		struct ibv_qp_attr change = { .qp_state = IBV_QPS_ERR };
		CHECK(!ibv_modify_qp(qp, &change, IBV_QP_STATE));
		struct ibv_recv_wr wr = { 0 }, *bad;
		if (!init.srq)
			CHECK(!ibv_post_recv(qp, &wr, &bad));
		CHECK(!ibv_destroy_qp(qp));
		CHECK(!ibv_dereg_mr(mr));
		CHECK(!ibv_destroy_srq(srq));
		CHECK(!ibv_destroy_cq(cq));
		CHECK(!ibv_destroy_comp_channel(channel));
		CHECK(!ibv_dealloc_pd(pd));
		if (own)
			CHECK(!ibv_close_device(context));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		rounds = 10;
	pthread_t threads[4];
	shared = open_device();
	for (long i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, hammer, (void *)(i & 1)));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(!ibv_close_device(shared));
	puts("fine");
	return 0;
}
