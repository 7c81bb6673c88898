/* A program forks before and after it opened a device. Children open a device of their own; calls with inherited objects fail
 * or do nothing, do not hang, and do not affect the parent. */
#include "common.h"

static struct side a, b, c, d;

static void own_device(void)
{
	both(&c, &d);
	for (int i = 0; i < 10; i++)
		message(&c, &d);
	destroy(&c);
	destroy(&d);
}

int main(void)
{
	alarm(50);
	pid_t child = fork();
	if (child == 0) {
		own_device();
		_exit(0);
	}
	CHECK(joined(child) == 0);

	both(&a, &b);
	message(&a, &b);
	child = fork();
	if (child == 0) {
		alarm(20);
		own_device();
		_exit(0);
	}
	message(&a, &b);
	CHECK(joined(child) == 0);
	message(&a, &b);

	/* Inherited objects: every call returns. */
	child = fork();
	if (child == 0) {
		struct ibv_wc wc;
		struct ibv_device_attr device;
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
		struct ibv_qp_init_attr init;
		alarm(20);
		receive(&b);
		send_to(&a);
		ibv_poll_cq(a.cq, 1, &wc);
		ibv_req_notify_cq(a.cq, 0);
		ibv_query_device(a.context, &device);
		ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init);
		attr.qp_state = IBV_QPS_ERR;
		ibv_modify_qp(a.qp, &attr, IBV_QP_STATE);
		ibv_alloc_pd(a.context);
		ibv_create_cq(a.context, 4, NULL, NULL, 0);
		ibv_reg_mr(a.pd, a.memory, 64, 0);
		ibv_resize_cq(a.cq, 32);
		ibv_destroy_qp(a.qp);
		ibv_dereg_mr(a.mr);
		ibv_destroy_cq(a.cq);
		ibv_destroy_comp_channel(a.channel);
		ibv_dealloc_pd(a.pd);
		ibv_close_device(a.context);
		own_device();
		exit(0);
	}
	CHECK(joined(child) == 0);
	message(&a, &b);

	/* A child that forks as well. */
	child = fork();
	if (child == 0) {
		alarm(20);
		own_device();
		pid_t grandchild = fork();
		if (grandchild == 0) {
			own_device();
			_exit(0);
		}
		CHECK(joined(grandchild) == 0);
		own_device();
		exit(0);
	}
	CHECK(joined(child) == 0);
	message(&a, &b);
	destroy(&a);
	destroy(&b);
	puts("fine");
	return 0;
}
