/* Verbs beyond the usual ones, through the headers' inline functions, between two queue pairs of one process that rdma_cm connects: so the
 * program runs in both personalities. It is given the personality's name. */
#include "common.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <time.h>

#define PAGES 16
#define PAGE 4096
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* Of rdma-core 50; older headers lack them, and `wr_flush`, the member behind `wr_atomic_write`. */
enum {
	ACCESS_FLUSH_GLOBAL = 1 << 8,
	ACCESS_FLUSH_PERSISTENT = 1 << 9,
	QP_EX_WITH_FLUSH = 1 << 11,
	FLUSH_GLOBAL = 1,
	FLUSH_RANGE = 0,
	FLUSH_MR = 1,
};
typedef void (*flush_function)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);

struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *base, *pd;
	struct ibv_td *td;
	struct ibv_cq_ex *cq;
};

static int allocated, freed;

static void *allocate(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	CHECK(pd && context == &allocated && type >= 1 && type <= 3);
	/* The second and the third one from the library. */
	if (allocated++ % 4 % 3)
		return IBV_ALLOCATOR_USE_DEFAULT;
	return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void release(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	CHECK(pd && context == &allocated && type >= 1 && type <= 3);
	freed++;
	free(memory);
}

static void create_queues(struct end *end, struct ibv_context *context)
{
	struct ibv_td_init_attr td = { 0 };
	CHECK(end->base = ibv_alloc_pd(context));
	CHECK(end->td = ibv_alloc_td(context, &td));
	struct ibv_parent_domain_init_attr parent = {
		.pd = end->base,
		.td = end->td,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = allocate,
		.free = release,
		.pd_context = &allocated,
	};
	CHECK(end->pd = ibv_alloc_parent_domain(context, &parent));
	CHECK(ibv_dealloc_td(end->td) == EBUSY && ibv_dealloc_pd(end->base) == EBUSY);
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 8,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
		.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
		.parent_domain = end->pd,
	};
	CHECK(end->cq = ibv_create_cq_ex(context, &cq));
}

static void create_qp(struct end *end)
{
	create_queues(end, end->id->verbs);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(end->cq),
		.recv_cq = ibv_cq_ex_to_cq(end->cq),
		.cap = { 16, 16, 4, 4, 0 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE | QP_EX_WITH_FLUSH,
	};
	CHECK(!rdma_create_qp_ex(end->id, &init));
	struct ibv_ece ece = { 0 };
	CHECK(!ibv_query_ece(end->id->qp, &ece) && ece.vendor_id && !ece.options);
	CHECK(!ibv_set_ece(end->id->qp, &ece));
	/* As in the original, for identifiers without a queue pair. */
	CHECK(rdma_set_local_ece(end->id, &ece) == -1 && errno == EINVAL);
}

static struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK(event->event == type);
	return event;
}

static void connect_ends(struct rdma_event_channel *at[2], struct end *a, struct end *b)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4, .rnr_retry_count = 7 };
	struct ibv_ece ece = { .vendor_id = 1 };
	struct rdma_cm_id *listener;
	CHECK(!rdma_create_id(at[1], &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&address) && !rdma_listen(listener, 1));
	address.sin_port = rdma_get_src_port(listener);
	CHECK(!rdma_create_id(at[0], &a->id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_set_local_ece(a->id, &ece));
	CHECK(!rdma_resolve_addr(a->id, NULL, (struct sockaddr *)&address, 5000));
	CHECK(!rdma_ack_cm_event(expect(at[0], RDMA_CM_EVENT_ADDR_RESOLVED)));
	CHECK(!rdma_resolve_route(a->id, 5000));
	CHECK(!rdma_ack_cm_event(expect(at[0], RDMA_CM_EVENT_ROUTE_RESOLVED)));
	create_qp(a);
	CHECK(!rdma_connect(a->id, &param));
	struct rdma_cm_event *request = expect(at[1], RDMA_CM_EVENT_CONNECT_REQUEST);
	b->id = request->id;
	CHECK(!rdma_ack_cm_event(request));
	CHECK(!rdma_get_remote_ece(b->id, &ece) && !ece.vendor_id);
	create_qp(b);
	CHECK(!rdma_accept(b->id, &param));
	CHECK(!rdma_ack_cm_event(expect(at[1], RDMA_CM_EVENT_ESTABLISHED)));
	CHECK(!rdma_ack_cm_event(expect(at[0], RDMA_CM_EVENT_ESTABLISHED)));
	CHECK(!rdma_destroy_id(listener));
}

static uint64_t raw_clock(struct ibv_context *context)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	CHECK(!ibv_query_rt_values_ex(context, &values) && values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
	return values.raw_clock.tv_nsec;
}

static uint64_t wall_clock(void)
{
	struct timespec now;
	CHECK(!clock_gettime(CLOCK_REALTIME, &now));
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Waits for a completion; its status, and the time of its writing in `raw`. */
static enum ibv_wc_status completion(struct end *end, uint64_t wr_id, uint64_t *raw)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int code;
	while ((code = ibv_start_poll(end->cq, &attr)) == ENOENT)
		;
	CHECK(!code && end->cq->wr_id == wr_id);
	enum ibv_wc_status status = end->cq->status;
	uint64_t wall = ibv_wc_read_completion_wallclock_ns(end->cq);
	*raw = ibv_wc_read_completion_ts(end->cq);
	CHECK(wall && wall <= wall_clock());
	ibv_end_poll(end->cq);
	return status;
}

static void succeed(struct end *end, uint64_t wr_id)
{
	uint64_t raw;
	CHECK(completion(end, wr_id, &raw) == IBV_WC_SUCCESS);
	CHECK(raw && raw <= raw_clock(end->id->verbs));
}

static void post(struct end *end, uint64_t wr_id, enum ibv_wr_opcode opcode, struct ibv_sge *list, int count,
		 uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = list, .num_sge = count, .opcode = opcode }, *bad;
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = rkey;
	CHECK(!ibv_post_send(end->id->qp, &wr, &bad));
}

static void post_receive(struct end *end, uint64_t wr_id, struct ibv_sge *list, int count)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = list, .num_sge = count }, *bad;
	CHECK(!ibv_post_recv(end->id->qp, &wr, &bad));
}

/* Pages that are registered before they can be accessed, and one key for all addresses. */
static void on_demand(struct end *a, struct end *b)
{
	char *pages = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	struct ibv_mr *region = ibv_reg_mr(b->pd, pages, PAGES * PAGE, ALL | IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *whole = ibv_reg_mr(a->pd, NULL, SIZE_MAX, ALL | IBV_ACCESS_ON_DEMAND);
	CHECK(region && whole && whole->length == SIZE_MAX);
	CHECK(!mprotect(pages, PAGES * PAGE, PROT_READ | PROT_WRITE));
	struct ibv_sge advice = { (uintptr_t)pages, PAGE, region->lkey };
	CHECK(!ibv_advise_mr(b->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &advice, 1));
	CHECK(ibv_advise_mr(b->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 8, &advice, 1) == EINVAL);
	char text[] = "from the stack";
	struct ibv_sge from = { (uintptr_t)text, sizeof text, whole->lkey };
	post(a, 1, IBV_WR_RDMA_WRITE, &from, 1, (uintptr_t)pages + PAGE - 4, region->rkey);
	succeed(a, 1);
	/* A read after it: when it has returned, the bytes are there in the personality iwarp, too. */
	char back[sizeof text];
	struct ibv_sge to = { (uintptr_t)back, sizeof back, whole->lkey };
	post(a, 2, IBV_WR_RDMA_READ, &to, 1, (uintptr_t)pages + PAGE - 4, region->rkey);
	succeed(a, 2);
	CHECK(!memcmp(back, text, sizeof text) && !memcmp(pages + PAGE - 4, text, sizeof text));
	CHECK(!ibv_dereg_mr(region) && !ibv_dereg_mr(whole) && !munmap(pages, PAGES * PAGE));
}

/* Zeros that are sent from nothing, and bytes that are received into nothing. */
static void null_region(struct end *a, struct end *b)
{
	char memory[64];
	memset(memory, 'x', sizeof memory);
	struct ibv_mr *mr = ibv_reg_mr(b->pd, memory, sizeof memory, ALL);
	struct ibv_mr *from = ibv_alloc_null_mr(a->pd), *to = ibv_alloc_null_mr(b->pd);
	CHECK(mr && from && to);
	struct ibv_sge list[] = { { (uintptr_t)memory, 8, mr->lkey }, { 0, 100, to->lkey },
				  { (uintptr_t)memory + 8, 56, mr->lkey } };
	struct ibv_sge zeros = { 12345, 120, from->lkey };
	post_receive(b, 3, list, 3);
	post(a, 4, IBV_WR_SEND, &zeros, 1, 0, 0);
	succeed(b, 3);
	succeed(a, 4);
	for (int i = 0; i < 64; i++)
		CHECK(memory[i] == (i < 20 ? 0 : 'x'));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(from) && !ibv_dereg_mr(to));
}

static void device_memory(struct end *a, struct end *b)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	struct ibv_dm *dm = ibv_alloc_dm(b->id->verbs, &attr);
	char text[] = "in the device", copy[sizeof text];
	CHECK(dm && !ibv_memcpy_to_dm(dm, 1000, text, sizeof text));
	CHECK(ibv_memcpy_to_dm(dm, PAGE, text, 1) == EFAULT);
	struct ibv_mr *mr = ibv_reg_dm_mr(b->pd, dm, 1000, 96, ALL | IBV_ACCESS_ZERO_BASED);
	struct ibv_mr *local = ibv_reg_mr(a->pd, copy, sizeof copy, ALL);
	CHECK(mr && local && ibv_free_dm(dm) == EBUSY);
	CHECK(!ibv_reg_dm_mr(b->pd, dm, 0, PAGE, ALL) && errno == EINVAL);
	struct ibv_sge to = { (uintptr_t)copy, sizeof copy, local->lkey };
	post(a, 5, IBV_WR_RDMA_READ, &to, 1, 0, mr->rkey);
	succeed(a, 5);
	CHECK(!memcmp(copy, text, sizeof text));
	CHECK(!ibv_dereg_mr(local) && !ibv_dereg_mr(mr) && !ibv_free_dm(dm));
	attr.length = 1ull << 40;
	CHECK(!ibv_alloc_dm(b->id->verbs, &attr) && errno == EINVAL);
}

/* A word that is written whole, and writes that are flushed to global visibility. */
static void placement(struct end *a, struct end *b)
{
	_Alignas(8) char memory[64] = "", text[] = "new word";
	struct ibv_mr *mr = ibv_reg_mr(b->pd, memory, sizeof memory, ALL | ACCESS_FLUSH_GLOBAL);
	struct ibv_mr *local = ibv_reg_mr(a->pd, text, sizeof text, ALL);
	CHECK(mr && local);
	CHECK(!ibv_reg_mr(b->pd, memory, sizeof memory, ALL | ACCESS_FLUSH_PERSISTENT) && errno == EOPNOTSUPP);
	struct ibv_sge word = { (uintptr_t)text, 8, local->lkey };
	post(a, 6, IBV_WR_ATOMIC_WRITE, &word, 1, (uintptr_t)memory + 8, mr->rkey);
	succeed(a, 6);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a->id->qp);
	CHECK(qp);
	flush_function flush = *(flush_function *)(&qp->wr_atomic_write + 1);
	ibv_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qp, mr->rkey, (uintptr_t)memory + 16, "by value");
	qp->wr_id = 8;
	flush(qp, mr->rkey, (uintptr_t)memory, sizeof memory, FLUSH_GLOBAL, FLUSH_RANGE);
	qp->wr_id = 9;
	flush(qp, mr->rkey, 0, 0, FLUSH_GLOBAL, FLUSH_MR);
	CHECK(!ibv_wr_complete(qp));
	for (uint64_t id = 7; id <= 9; id++)
		succeed(a, id);
	CHECK(!memcmp(memory + 8, "new wordby value", 16));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(local));
}

/* More completions than entries: the connection stays, and the last ones are found. */
static void overrun(struct end *a, struct end *b)
{
	char memory[8];
	struct ibv_mr *mr = ibv_reg_mr(b->pd, memory, sizeof memory, ALL);
	struct ibv_mr *local = ibv_reg_mr(a->pd, memory, sizeof memory, ALL);
	struct ibv_sge sge = { (uintptr_t)memory, sizeof memory, local->lkey };
	CHECK(mr && local);
	for (uint64_t id = 1; id <= 14; id++)
		post(a, id, IBV_WR_RDMA_WRITE, &sge, 1, (uintptr_t)memory, mr->rkey);
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t last = 0;
	while (last < 14) {
		int code = ibv_start_poll(a->cq, &attr);
		if (code == ENOENT)
			continue;
		CHECK(!code && a->cq->status == IBV_WC_SUCCESS && a->cq->wr_id > last);
		last = a->cq->wr_id;
		ibv_end_poll(a->cq);
	}
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(local));
}

static void capabilities(struct ibv_context *context, int iwarp)
{
	struct ibv_device_attr_ex attr;
	CHECK(!ibv_query_device_ex(context, NULL, &attr));
	CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_READ);
	CHECK((attr.odp_caps.per_transport_caps.ud_odp_caps == 0) == iwarp);
	CHECK(attr.hca_core_clock == 1000000 && attr.completion_timestamp_mask == UINT64_MAX);
	CHECK(attr.max_dm_size == 16 << 20);
	/* Without flows there are no counters of flows. */
	struct ibv_counters_init_attr counters = { 0 };
	CHECK(!ibv_create_counters(context, &counters) && (errno == EOPNOTSUPP || errno == ENOSYS));
	/* The question of NCCL and UCX whether memory of a GPU can be registered. */
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && !ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) && errno == EOPNOTSUPP);
	CHECK(!ibv_dealloc_pd(pd));
}

static void destroy_end(struct end *end)
{
	rdma_destroy_qp(end->id);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(end->cq)));
	CHECK(!ibv_dealloc_pd(end->pd) && !ibv_dealloc_td(end->td) && !ibv_dealloc_pd(end->base));
	CHECK(!rdma_destroy_id(end->id));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && !setenv("VERBENA_PERSONALITY", argv[1], 1));
	struct rdma_event_channel *channels[2] = { rdma_create_event_channel(), rdma_create_event_channel() };
	struct end a, b;
	CHECK(channels[0] && channels[1]);
	connect_ends(channels, &a, &b);
	capabilities(a.id->verbs, !strcmp(argv[1], "iwarp"));
	on_demand(&a, &b);
	null_region(&a, &b);
	device_memory(&a, &b);
	placement(&a, &b);
	overrun(&a, &b);
	CHECK(!rdma_disconnect(a.id));
	CHECK(!rdma_ack_cm_event(expect(channels[1], RDMA_CM_EVENT_DISCONNECTED)));
	CHECK(!rdma_ack_cm_event(expect(channels[0], RDMA_CM_EVENT_DISCONNECTED)));
	destroy_end(&a);
	destroy_end(&b);
	CHECK(allocated == 4 && freed == 2);
	rdma_destroy_event_channel(channels[0]);
	rdma_destroy_event_channel(channels[1]);
	puts("fine");
	return 0;
}
