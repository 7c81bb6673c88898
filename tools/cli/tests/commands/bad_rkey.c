/*
 * A program that misuses verbs: its client writes to a region of its server that grants remote reads only. Both keep their queue pairs until
 * standard input ends. The server prints its port; the client prints the status of its write.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct target {
	uint64_t addr;
	uint32_t rkey;
};

static void check(int wrong, const char *what)
{
	if (!wrong)
		return;
	perror(what);
	exit(1);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

static void wait_for_end(void)
{
	char byte;

	while (read(0, &byte, 1) > 0)
		;
}

static void serve(void)
{
	static char buffer[4096];
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_cm_id *listener, *id;
	struct target target;
	struct rdma_conn_param param = {.private_data = &target, .private_data_len = sizeof(target)};
	struct ibv_mr *mr;

	check(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&at), "rdma_bind_addr");
	check(rdma_listen(listener, 1), "rdma_listen");
	printf("%d\n", ntohs(rdma_get_src_port(listener)));
	fflush(stdout);
	check(rdma_get_request(listener, &id), "rdma_get_request");
	make_qp(id);
	mr = ibv_reg_mr(id->pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	check(!mr, "ibv_reg_mr");
	target = (struct target){.addr = (uintptr_t)buffer, .rkey = mr->rkey};
	check(rdma_accept(id, &param), "rdma_accept");
	wait_for_end();
}

static void write_to(const char *port)
{
	static char buffer[64];
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(atoi(port)),
	};
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *id;
	struct target target;
	struct ibv_send_wr wr = {.wr_id = 4242, .opcode = IBV_WR_RDMA_WRITE, .num_sge = 1}, *bad;
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = sizeof(buffer)};
	struct ibv_mr *mr;
	struct ibv_wc wc;
	int n;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), "rdma_resolve_addr");
	check(rdma_resolve_route(id, 5000), "rdma_resolve_route");
	make_qp(id);
	check(rdma_connect(id, &param), "rdma_connect");
	memcpy(&target, id->event->param.conn.private_data, sizeof(target));
	mr = ibv_reg_mr(id->pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	check(!mr, "ibv_reg_mr");
	sge.lkey = mr->lkey;
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = target.addr + 8;
	wr.wr.rdma.rkey = target.rkey;
	check(ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
	do
		n = ibv_poll_cq(id->send_cq, 1, &wc);
	while (!n);
	printf("%s\n", ibv_wc_status_str(wc.status));
	fflush(stdout);
	wait_for_end();
}

int main(int argc, char **argv)
{
	if (argc > 1)
		write_to(argv[1]);
	else
		serve();
	return 0;
}
