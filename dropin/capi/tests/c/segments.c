/* A standard iWARP server written by hand, with chosen segment sizes: full frames of Verbena have no pad, fit a segment and end with it. */
#include "common.h"
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#define MESSAGES 4
#define LEN 10000
/* Length field and DDP header in front of the payload, checksum behind it. */
#define LENGTH 2
#define HEAD 18
#define CRC 4

static char payload[LEN];

static unsigned data_segments(int socket)
{
	struct tcp_info info;
	socklen_t len = sizeof info;
	CHECK(!getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &len));
	return info.tcpi_data_segs_in;
}

static void read_all(int socket, unsigned char *to, size_t count)
{
	while (count > 0) {
		ssize_t n = read(socket, to, count);
		CHECK(n > 0);
		to += n;
		count -= n;
	}
}

/* The MPA startup without the extensions and without peer-to-peer mode. */
static void *serve(void *pair)
{
	int *sockets = pair;
	unsigned char request[20], rest[512];
	static const char reply[] = "MPA ID Rep Frame\x10\x02\0\x04\0\x01\0\x01";
	CHECK((sockets[1] = accept(sockets[0], NULL, NULL)) >= 0);
	read_all(sockets[1], request, sizeof request);
	read_all(sockets[1], rest, request[18] << 8 | request[19]);
	CHECK(write(sockets[1], reply, 24) == 24);
	return NULL;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK(event->event == type);
	CHECK(!rdma_ack_cm_event(event));
}

static void with(int mss)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof at;
	int sockets[2] = { socket(AF_INET, SOCK_STREAM, 0), -1 };
	pthread_t thread;
	CHECK(sockets[0] >= 0 && !setsockopt(sockets[0], IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss));
	CHECK(!bind(sockets[0], (struct sockaddr *)&at, len) && !listen(sockets[0], 1));
	CHECK(!getsockname(sockets[0], (struct sockaddr *)&at, &len));
	CHECK(!pthread_create(&thread, NULL, serve, sockets));

	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 2000));
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, payload, sizeof payload, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = { 8, 8, 1, 1, 0 }, .qp_type = IBV_QPT_RC
	};
	CHECK(pd && cq && mr && !rdma_create_qp(id, pd, &init));
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	CHECK(!rdma_connect(id, &param));
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!pthread_join(thread, NULL));

	unsigned before = data_segments(sockets[1]);
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = { (uintptr_t)payload, LEN, mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
		CHECK(!ibv_post_send(id->qp, &wr, &bad));
	}
	int carried = 0, frames = 0, full = 0, largest = 0;
	while (carried < MESSAGES * LEN) {
		static unsigned char frame[1 << 16];
		read_all(sockets[1], frame, LENGTH);
		int ulpdu = frame[0] << 8 | frame[1], pad = -(LENGTH + ulpdu) & 3;
		read_all(sockets[1], frame, ulpdu + pad + CRC);
		int size = LENGTH + ulpdu + pad + CRC;
		/* Full frames are followed by another: the flag "last" of DDP is clear. */
		if (!(frame[0] & 0x40)) {
			full++;
			CHECK(pad == 0);
			CHECK(largest == 0 || size == largest);
			largest = size;
		}
		CHECK(size <= mss);
		carried += ulpdu - HEAD;
		frames++;
	}
	CHECK(full > 0);
	/* The options of TCP take up to twelve bytes of a segment. */
	CHECK(largest + 16 > mss);
	/* Fewer segments than frames: some frame did not begin with its segment. */
	CHECK(data_segments(sockets[1]) - before >= (unsigned)frames);
	CHECK(!rdma_disconnect(id));
	rdma_destroy_qp(id);
	CHECK(!ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	close(sockets[0]);
	close(sockets[1]);
}

int main(void)
{
	static const int sizes[] = { 536, 1000, 1337, 1448, 1460, 8948 };
	setenv("VERBENA_RTR", "none", 1);
	setenv("VERBENA_CRC", "off", 1);
	setenv("VERBENA_NUDGE", "0s", 1);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		with(sizes[i]);
	puts("fine");
	return 0;
}
