/* A client of the example `upgrade` that uses plain verbs: requests by message, eight in flight, and a model of every
 * reply. It exits with success when its standard input ends, and prints what it counted. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                              \
	do {                                                                                     \
		if (!(what)) {                                                                   \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			_exit(1);                                                                \
		}                                                                                \
	} while (0)

enum { WINDOW = 8, WORDS = 8, CELL = 64, PUT = 1, GET = 2, ADD = 3 };

static struct {
	uint64_t request[WINDOW][WORDS], reply[WINDOW][WORDS];
} memory;
/* The expected reply of each request in flight: version and value. */
static struct {
	uint64_t version, value;
} expected[WINDOW];

static struct rdma_cm_event *event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	if (event->event != type) {
		fprintf(stderr, "%s (%d)\n", rdma_event_str(event->event), event->status);
		_exit(1);
	}
	return event;
}

static void receive(struct rdma_cm_id *id, struct ibv_mr *mr, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)memory.reply[slot], CELL, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(id->qp, &wr, &bad));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel);
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[2])) };
	CHECK(inet_pton(AF_INET, argv[1], &to.sin_addr) == 1);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
	rdma_ack_cm_event(event(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(!rdma_resolve_route(id, 2000));
	rdma_ack_cm_event(event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_comp_channel *bell = ibv_create_comp_channel(id->verbs);
	CHECK(pd && bell);
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 64, NULL, bell, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, &memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(cq && mr);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { 2 * WINDOW, WINDOW, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};
	CHECK(!rdma_create_qp(id, pd, &init));
	for (uint64_t slot = 0; slot < WINDOW; slot++)
		receive(id, mr, slot);
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	CHECK(!rdma_connect(id, &param));
	struct rdma_cm_event *established = event(channel, RDMA_CM_EVENT_ESTABLISHED);
	uint64_t index;
	CHECK(established->param.conn.private_data_len >= sizeof index);
	memcpy(&index, established->param.conn.private_data, sizeof index);
	rdma_ack_cm_event(established);

	uint64_t sent = 0, answered = 0, version = 0, value = 0, generation = 0, changes = 0;
	int over = 0;
	CHECK(!ibv_req_notify_cq(cq, 0));
	while (!over || answered < sent) {
		for (; !over && sent < answered + WINDOW; sent++) {
			uint64_t slot = sent % WINDOW, what = (const uint64_t[]){ PUT, ADD, GET }[sent % 3];
			uint64_t operand = (sent + 1) * 0x9e3779b97f4a7c15;
			if (what != GET) {
				version++;
				value = what == ADD ? value + operand : operand;
			}
			expected[slot].version = version;
			expected[slot].value = value;
			uint64_t *request = memory.request[slot];
			memset(request, 0, CELL);
			request[0] = sent, request[1] = what, request[2] = 2 * index, request[3] = operand;
			struct ibv_sge sge = { (uintptr_t)request, CELL, mr->lkey };
			struct ibv_send_wr wr = { .wr_id = 100, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
			struct ibv_send_wr *bad;
			CHECK(!ibv_post_send(id->qp, &wr, &bad));
		}
		struct ibv_wc wc;
		int n;
		while ((n = ibv_poll_cq(cq, 1, &wc)) > 0) {
			if (wc.status != IBV_WC_SUCCESS) {
				fprintf(stderr, "%s after %lu answers\n", ibv_wc_status_str(wc.status), (unsigned long)answered);
				_exit(1);
			}
			if (wc.wr_id == 100)
				continue;
			/* In order, each once, with the content of the model. */
			uint64_t slot = wc.wr_id, *reply = memory.reply[slot];
			CHECK(wc.byte_len == CELL && slot == answered % WINDOW);
			CHECK(reply[0] == answered && reply[4] == 0 && reply[5] == 2 * index);
			CHECK(reply[1] == expected[slot].version && reply[2] == expected[slot].value);
			CHECK(reply[3] >= generation);
			if (generation && reply[3] > generation) {
				printf("change %lu\n", (unsigned long)++changes);
				fflush(stdout);
			}
			generation = reply[3];
			if (++answered == 100) {
				puts("loading");
				fflush(stdout);
			}
			receive(id, mr, slot);
		}
		CHECK(n == 0);
		if (over ? answered == sent : sent < answered + WINDOW)
			continue;
		struct pollfd fds[] = { { bell->fd, POLLIN, 0 }, { over ? -1 : 0, POLLIN, 0 } };
		CHECK(poll(fds, 2, 20000) > 0);
		if (fds[0].revents) {
			struct ibv_cq *rung;
			void *context;
			CHECK(!ibv_get_cq_event(bell, &rung, &context));
			ibv_ack_cq_events(cq, 1);
			CHECK(!ibv_req_notify_cq(cq, 0));
		}
		over |= fds[1].revents != 0;
	}
	printf("%lu answers, %lu changes of the server\n", (unsigned long)answered, (unsigned long)changes);
	CHECK(!rdma_disconnect(id));
	rdma_destroy_qp(id);
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(bell) && !ibv_dealloc_pd(pd));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	puts("fine");
	return 0;
}
