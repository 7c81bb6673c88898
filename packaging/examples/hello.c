/*
 * One process, two ends: connects to itself with rdma_cm over the loopback interface, sends one message, and prints it.
 * It needs no headers or libraries but Verbena's:
 *
 *     gcc -o hello hello.c $(pkg-config --cflags --libs verbena-rdmacm)
 *     verbena run ./hello
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program unless a call has done what it should. */
static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

/* Takes the next event, which has to be this one. */
static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	check(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	return event;
}

/* A queue pair with one send and one receive, and completions in one queue. */
static struct ibv_cq *make_qp(struct rdma_cm_id *id)
{
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	check(cq != NULL, "ibv_create_cq");
	check(rdma_create_qp(id, NULL, &attr) == 0, "rdma_create_qp");
	return cq;
}

/* Waits for one completion, which has to be a success. */
static void completed(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found;

	do
		found = ibv_poll_cq(cq, 1, &wc);
	while (found == 0);
	check(found == 1, "ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

int main(void)
{
	struct rdma_event_channel *accepting = rdma_create_event_channel();
	struct rdma_event_channel *connecting = rdma_create_event_channel();
	struct rdma_cm_id *listener, *client, *server;
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	char sent[] = "hello over RDMA", received[sizeof(sent)] = "";
	struct ibv_cq *client_cq, *server_cq;
	struct ibv_mr *from, *to;

	check(accepting && connecting, "rdma_create_event_channel");
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(rdma_create_id(accepting, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0, "rdma_bind_addr");
	check(rdma_listen(listener, 1) == 0, "rdma_listen");
	address.sin_port = rdma_get_src_port(listener);

	check(rdma_create_id(connecting, &client, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, 1000) == 0, "rdma_resolve_addr");
	rdma_ack_cm_event(next(connecting, RDMA_CM_EVENT_ADDR_RESOLVED));
	check(rdma_resolve_route(client, 1000) == 0, "rdma_resolve_route");
	rdma_ack_cm_event(next(connecting, RDMA_CM_EVENT_ROUTE_RESOLVED));
	client_cq = make_qp(client);
	check(rdma_connect(client, &param) == 0, "rdma_connect");

	struct rdma_cm_event *request = next(accepting, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = request->id;
	rdma_ack_cm_event(request);
	server_cq = make_qp(server);
	to = ibv_reg_mr(server->pd, received, sizeof(received), IBV_ACCESS_LOCAL_WRITE);
	check(to != NULL, "ibv_reg_mr");
	struct ibv_sge into = { .addr = (uintptr_t)received, .length = sizeof(received), .lkey = to->lkey };
	struct ibv_recv_wr receive = { .sg_list = &into, .num_sge = 1 }, *bad_receive;
	check(ibv_post_recv(server->qp, &receive, &bad_receive) == 0, "ibv_post_recv");
	check(rdma_accept(server, &param) == 0, "rdma_accept");
	rdma_ack_cm_event(next(accepting, RDMA_CM_EVENT_ESTABLISHED));
	rdma_ack_cm_event(next(connecting, RDMA_CM_EVENT_ESTABLISHED));

	from = ibv_reg_mr(client->pd, sent, sizeof(sent), 0);
	check(from != NULL, "ibv_reg_mr");
	struct ibv_sge out = { .addr = (uintptr_t)sent, .length = sizeof(sent), .lkey = from->lkey };
	struct ibv_send_wr send = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	check(ibv_post_send(client->qp, &send, &bad_send) == 0, "ibv_post_send");
	completed(client_cq);
	completed(server_cq);
	printf("%s\n", received);

	rdma_disconnect(client);
	rdma_ack_cm_event(next(accepting, RDMA_CM_EVENT_DISCONNECTED));
	ibv_dereg_mr(from);
	ibv_dereg_mr(to);
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	ibv_destroy_cq(client_cq);
	ibv_destroy_cq(server_cq);
	rdma_destroy_id(client);
	rdma_destroy_id(server);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(accepting);
	rdma_destroy_event_channel(connecting);
	return 0;
}
