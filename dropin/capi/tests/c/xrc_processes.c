/* An XRC domain of several processes: agents have shared receive queues and targets of one domain, which a file names, and the parent process is the
 * initiator. What is for a queue of one agent arrives at the target of another one, also while agents are killed. */
#include "common.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#define SIZE (256 * 1024)
#define ROUNDS 500
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* A command for an agent, and its answer. */
struct message {
	char what;
	int status;
	uint32_t number, key, qp, length;
	uint64_t at;
	char text[32];
};

struct agent {
	pid_t pid;
	int socket;
	uint32_t srq, key, target;
	uint64_t memory;
};

struct process {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	char *memory;
};

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd, int flags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags
	};
	return ibv_open_xrcd(context, &attr);
}

static void open_process(struct process *own)
{
	own->context = open_device();
	CHECK(own->pd = ibv_alloc_pd(own->context));
	CHECK(own->cq = ibv_create_cq(own->context, 64, NULL, NULL, 0));
	CHECK(own->memory = calloc(1, SIZE));
	CHECK(own->mr = ibv_reg_mr(own->pd, own->memory, SIZE, ACCESS));
}

static struct ibv_qp *create_target(struct process *own)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = own->xrcd
	};
	struct ibv_qp *qp = ibv_create_qp_ex(own->context, &init);
	CHECK(qp);
	return qp;
}

static struct ibv_qp *create_initiator(struct process *own)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = own->pd,
		.send_cq = own->cq,
		.cap = { .max_send_wr = 32, .max_send_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp_ex(own->context, &init);
	CHECK(qp);
	return qp;
}

/* Each end has the attributes of its role: an initiator receives no requests, and a target sends none. */
static void connect_to(struct ibv_context *context, struct ibv_qp *qp, uint32_t peer)
{
	int target = qp->qp_type == IBV_QPT_XRC_RECV;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = target ? ACCESS & ~IBV_ACCESS_LOCAL_WRITE : 0
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.min_rnr_timer = 1;
	attr.max_dest_rd_atomic = 4;
	CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     (target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				     (target ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)));
}

static void post(struct process *own, uint64_t at, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)own->memory + at, length, own->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(own->srq, &wr, &bad));
}

static struct ibv_wc completed(struct process *own)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(own->cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc;
}

static void serve(int socket, int fd)
{
	struct process own;
	struct ibv_qp *target = NULL, *opened = NULL;
	struct message m;
	open_process(&own);
	CHECK(own.xrcd = open_domain(own.context, fd, O_CREAT));
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 64, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = own.xrcd,
		.cq = own.cq,
		.pd = own.pd,
	};
	CHECK(own.srq = ibv_create_srq_ex(own.context, &init));
	while (read(socket, &m, sizeof m) == sizeof m) {
		switch (m.what) {
		case 'i': /* its parts */
			CHECK(!ibv_get_srq_num(own.srq, &m.number));
			m.key = own.mr->rkey;
			m.at = (uintptr_t)own.memory;
			break;
		case 't': /* a target for this initiator */
			if (!target)
				target = create_target(&own);
			m.qp = target->qp_num;
			break;
		case 'j':
			connect_to(own.context, target, m.qp);
			break;
		case 'd':
			CHECK(!ibv_destroy_qp(target));
			target = NULL;
			break;
		case 'o': { /* opens that of another process */
			struct ibv_qp_open_attr attr = {
				.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
				.qp_num = m.qp,
				.xrcd = own.xrcd,
				.qp_type = IBV_QPT_XRC_RECV,
			};
			opened = ibv_open_qp(own.context, &attr);
			m.status = opened ? 0 : errno;
			if (opened)
				CHECK(opened->qp_num == m.qp);
			break;
		}
		case 'q': {
			struct ibv_qp_attr attr;
			struct ibv_qp_init_attr own_init;
			CHECK(!ibv_query_qp(opened, &attr, IBV_QP_STATE, &own_init));
			CHECK(own_init.qp_type == IBV_QPT_XRC_RECV);
			m.status = attr.qp_state;
			break;
		}
		case 'u':
			CHECK(!ibv_destroy_qp(opened));
			break;
		case 'x': { /* the domain must be new, or may */
			struct ibv_xrcd *xrcd = open_domain(own.context, fd, m.number);
			m.status = xrcd ? 0 : errno;
			CHECK(!xrcd || !ibv_close_xrcd(xrcd));
			break;
		}
		case 'p':
			post(&own, m.at, m.length);
			break;
		case 'c': {
			struct ibv_wc wc = completed(&own);
			m.status = wc.status;
			m.qp = wc.qp_num;
			m.number = wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0;
			m.length = wc.byte_len;
			m.at = wc.wr_id;
			memcpy(m.text, own.memory + wc.wr_id, sizeof m.text);
			break;
		}
		case 'm':
			memcpy(m.text, own.memory + m.at, sizeof m.text);
			break;
		}
		CHECK(write(socket, &m, sizeof m) == sizeof m);
	}
	/* Everything in order, except for a target that another process may have open. */
	if (target)
		CHECK(!ibv_destroy_qp(target));
	CHECK(!ibv_destroy_srq(own.srq));
	CHECK(!ibv_close_xrcd(own.xrcd));
	CHECK(!ibv_dereg_mr(own.mr));
	CHECK(!ibv_destroy_cq(own.cq));
	CHECK(!ibv_dealloc_pd(own.pd));
	CHECK(!ibv_close_device(own.context));
	_exit(0);
}

static struct message ask(struct agent *agent, struct message m)
{
	CHECK(write(agent->socket, &m, sizeof m) == sizeof m);
	CHECK(read(agent->socket, &m, sizeof m) == sizeof m);
	return m;
}

#define ASK(agent, ...) ask(agent, (struct message){ __VA_ARGS__ })

/* The sockets of the others must not stay open in it. */
static struct agent start(int fd, const struct agent *others, int count)
{
	int ends[2];
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
	struct agent agent = { .socket = ends[0] };
	CHECK((agent.pid = fork()) >= 0);
	if (!agent.pid) {
		close(ends[0]);
		for (int i = 0; i < count; i++)
			close(others[i].socket);
		serve(ends[1], fd);
	}
	close(ends[1]);
	struct message parts = ASK(&agent, .what = 'i');
	agent.srq = parts.number;
	agent.key = parts.key;
	agent.memory = parts.at;
	return agent;
}

static void end_agent(struct agent *agent)
{
	close(agent->socket);
	CHECK(joined(agent->pid) == 0);
}

static void kill_agent(struct agent *agent)
{
	CHECK(!kill(agent->pid, SIGKILL));
	CHECK(joined(agent->pid) == 255);
	close(agent->socket);
}

/* An initiator whose target is in the agent. */
static struct ibv_qp *connect_agent(struct process *own, struct agent *agent)
{
	struct ibv_qp *initiator = create_initiator(own);
	agent->target = ASK(agent, .what = 't').qp;
	ASK(agent, .what = 'j', .qp = initiator->qp_num);
	connect_to(own->context, initiator, agent->target);
	return initiator;
}

static void request(struct process *own, struct ibv_qp *qp, const struct agent *to, enum ibv_wr_opcode opcode,
		    uint32_t length, uint64_t remote)
{
	struct ibv_sge sge = { (uintptr_t)own->memory, length, own->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = opcode, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(0x1234),
		.qp_type.xrc.remote_srqn = to->srq,
	}, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = to->memory + remote;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.rkey = to->key;
	} else {
		wr.wr.rdma.remote_addr = to->memory + remote;
		wr.wr.rdma.rkey = to->key;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void succeeds(struct process *own)
{
	struct ibv_wc wc = completed(own);
	if (wc.status)
		fprintf(stderr, "request %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
	CHECK(wc.status == IBV_WC_SUCCESS);
}

static void fails(struct process *own, enum ibv_wc_status status)
{
	struct ibv_wc wc = completed(own);
	if (wc.status != status)
		fprintf(stderr, "request %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
	CHECK(wc.status == status);
}

/* Messages for the queue of one agent through the target of another one. */
static void messages(struct process *own, struct ibv_qp *qp, struct agent *owner, struct agent *holder)
{
	static const uint32_t lengths[] = { 1, 100, 4096, 70000, SIZE / 2 };
	for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		snprintf(own->memory, 32, "message %u", i);
		ASK(holder, .what = 'p', .at = 1024, .length = lengths[i]);
		request(own, qp, holder, i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, lengths[i], 0);
		struct message got = ASK(holder, .what = 'c');
		CHECK(got.status == IBV_WC_SUCCESS && got.length == lengths[i] && got.at == 1024);
		CHECK(got.qp == owner->target && got.number == (i % 2 ? 0x1234 : 0));
		CHECK(!strncmp(got.text, own->memory, lengths[i] < 32 ? lengths[i] : 32));
		succeeds(own);
	}
	/* Nothing is posted when it arrives. */
	snprintf(own->memory, 32, "not ready");
	request(own, qp, holder, IBV_WR_SEND, 16, 0);
	ASK(holder, .what = 'p', .at = 2048, .length = 16);
	struct message late = ASK(holder, .what = 'c');
	CHECK(late.status == IBV_WC_SUCCESS && !strcmp(late.text, "not ready"));
	succeeds(own);
	/* Queues of both processes in turn. */
	for (int i = 0; i < ROUNDS; i++) {
		struct agent *to = i % 3 ? holder : owner;
		ASK(to, .what = 'p', .at = 64, .length = 64);
		snprintf(own->memory, 32, "round %d", i);
		request(own, qp, to, IBV_WR_SEND, 32, 0);
		struct message got = ASK(to, .what = 'c');
		CHECK(got.status == IBV_WC_SUCCESS && got.qp == owner->target && !strcmp(got.text, own->memory));
		succeeds(own);
	}
}

/* Memory of one agent through the target of another one. */
static void memory(struct process *own, struct ibv_qp *qp, struct agent *holder)
{
	for (int i = 0; i < SIZE / 2; i++)
		own->memory[i] = (char)(i * 7);
	request(own, qp, holder, IBV_WR_RDMA_WRITE, SIZE / 2, SIZE / 2);
	succeeds(own);
	memset(own->memory, 0, SIZE / 2);
	request(own, qp, holder, IBV_WR_RDMA_READ, SIZE / 2, SIZE / 2);
	succeeds(own);
	for (int i = 0; i < SIZE / 2; i++)
		CHECK(own->memory[i] == (char)(i * 7));
	ASK(holder, .what = 'p', .at = 0, .length = 8);
	request(own, qp, holder, IBV_WR_RDMA_WRITE_WITH_IMM, 64, 512);
	struct message got = ASK(holder, .what = 'c');
	CHECK(got.status == IBV_WC_SUCCESS && got.length == 64 && got.number == 0x1234);
	succeeds(own);
	uint64_t word;
	memset(own->memory, 0, 8);
	request(own, qp, holder, IBV_WR_RDMA_WRITE, 8, 4096);
	succeeds(own);
	for (uint64_t i = 0; i < 3; i++) {
		request(own, qp, holder, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4096);
		succeeds(own);
		memcpy(&word, own->memory, 8);
		CHECK(word == 5 * i);
	}
	/* Beyond its memory: the connection ends. */
	request(own, qp, holder, IBV_WR_RDMA_WRITE, 64, SIZE - 32);
	fails(own, IBV_WC_REM_ACCESS_ERR);
}

int main(void)
{
	char path[] = "/tmp/verbena-xrc-XXXXXX";
	struct process own;
	int fd = mkstemp(path);
	CHECK(fd >= 0 && !unlink(path));
	/* Forked before a device is open here. */
	struct agent agents[2] = { 0 };
	agents[0] = start(fd, agents, 0);
	agents[1] = start(fd, agents, 1);
	struct agent *owner = &agents[0], *holder = &agents[1];
	CHECK(owner->srq != holder->srq);
	open_process(&own);

	/* A domain that a process has is not new, and can be opened without O_CREAT. */
	CHECK(!open_domain(own.context, fd, O_CREAT | O_EXCL) && errno == EINVAL);
	CHECK(own.xrcd = open_domain(own.context, fd, 0));
	CHECK(!ibv_close_xrcd(own.xrcd));

	struct ibv_qp *qp = connect_agent(&own, owner);
	messages(&own, qp, owner, holder);
	memory(&own, qp, holder);
	CHECK(!ibv_destroy_qp(qp));
	ASK(owner, .what = 'd');

	/* A target exists as long as any process has it open. */
	qp = connect_agent(&own, owner);
	CHECK(ASK(holder, .what = 'o', .qp = owner->target + 1).status == EINVAL);
	CHECK(ASK(holder, .what = 'o', .qp = owner->target).status == 0);
	CHECK(ASK(holder, .what = 'q').status == IBV_QPS_RTS);
	ASK(owner, .what = 'd');
	CHECK(ASK(holder, .what = 'q').status == IBV_QPS_RTS);
	ASK(holder, .what = 'p', .at = 0, .length = 64);
	request(&own, qp, holder, IBV_WR_SEND, 64, 0);
	CHECK(ASK(holder, .what = 'c').qp == owner->target);
	succeeds(&own);
	ASK(holder, .what = 'u');
	request(&own, qp, holder, IBV_WR_SEND, 64, 0);
	struct ibv_wc wc = completed(&own);
	CHECK(wc.status != IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(qp));

	/* The process of the queue is killed while a message for it waits: the message fails, and other queues of the domain go on. */
	qp = connect_agent(&own, owner);
	ASK(holder, .what = 'p', .at = 0, .length = 64);
	int state;
	CHECK(!kill(holder->pid, SIGSTOP) && waitpid(holder->pid, &state, WUNTRACED) == holder->pid && WIFSTOPPED(state));
	request(&own, qp, holder, IBV_WR_SEND, 64, 0);
	kill_agent(holder);
	fails(&own, IBV_WC_REM_INV_REQ_ERR);
	CHECK(!ibv_destroy_qp(qp));
	ASK(owner, .what = 'd');
	qp = connect_agent(&own, owner);
	ASK(owner, .what = 'p', .at = 0, .length = 64);
	request(&own, qp, owner, IBV_WR_SEND, 64, 0);
	CHECK(ASK(owner, .what = 'c').status == IBV_WC_SUCCESS);
	succeeds(&own);
	/* Its number names no queue. */
	request(&own, qp, holder, IBV_WR_SEND, 64, 0);
	fails(&own, IBV_WC_REM_INV_REQ_ERR);
	CHECK(!ibv_destroy_qp(qp));
	ASK(owner, .what = 'd');

	/* The process of the target is killed in the middle of messages: the queue of the other one is used by another target. */
	*holder = start(fd, agents, 1);
	for (int i = 0; i < 8; i++)
		ASK(holder, .what = 'p', .at = 0, .length = 64);
	qp = connect_agent(&own, owner);
	for (int i = 0; i < 8; i++)
		request(&own, qp, holder, IBV_WR_SEND, 64, 0);
	succeeds(&own);
	kill_agent(owner);
	int delivered = 1, before = 0;
	for (int i = 1; i < 8; i++)
		delivered += completed(&own).status == IBV_WC_SUCCESS;
	CHECK(!ibv_destroy_qp(qp));
	*owner = *holder;
	*holder = start(fd, agents, 1);
	qp = connect_agent(&own, holder);
	/* What was not received before is received now; a message that was cut may have ended its receive. */
	struct message got;
	for (int i = 0; i < 8; i++) {
		ASK(owner, .what = 'p', .at = 0, .length = 64);
		snprintf(own.memory, 32, "again %d", i);
		request(&own, qp, owner, IBV_WR_SEND, 64, 0);
		succeeds(&own);
	}
	for (int received = 0; received < 8; before += got.qp != holder->target) {
		got = ASK(owner, .what = 'c');
		CHECK(got.status == IBV_WC_SUCCESS || got.status == IBV_WC_WR_FLUSH_ERR);
		received += got.qp == holder->target;
	}
	/* An initiator that saw a success is right; of the others, some may have arrived. */
	CHECK(before >= delivered && before <= 8);
	CHECK(!ibv_destroy_qp(qp));

	/* The domain ends with its last process. */
	end_agent(owner);
	end_agent(holder);
	CHECK(!open_domain(own.context, fd, 0) && errno == EAGAIN);
	CHECK(own.xrcd = open_domain(own.context, fd, O_CREAT | O_EXCL));
	CHECK(!ibv_close_xrcd(own.xrcd));
	CHECK(!ibv_dereg_mr(own.mr));
	CHECK(!ibv_destroy_cq(own.cq));
	CHECK(!ibv_dealloc_pd(own.pd));
	CHECK(!ibv_close_device(own.context));
	free(own.memory);
	puts("fine");
	return 0;
}
