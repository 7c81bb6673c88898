/* Requests of one queue pair take effect in order: a Read returns nothing of the Write behind it, and nothing behind a Read with a
 * bad key takes effect. */
#include "common.h"

#define ROUNDS 2000
#define LONGEST 65536

static struct side a, b;
static unsigned char source[LONGEST], sink[LONGEST], target[LONGEST];

static struct ibv_mr *memory(struct side *side, void *start)
{
	return ibv_reg_mr(side->pd, start, LONGEST,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
}

static void join_for_reads(struct side *side, uint32_t peer)
{
	join_with(side, peer, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, 4);
}

static struct ibv_wc next(struct side *side)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(side->cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc;
}

int main(void)
{
	make(&a);
	make(&b);
	join_for_reads(&a, b.qp->qp_num);
	join_for_reads(&b, a.qp->qp_num);
	struct ibv_mr *from = memory(&a, source), *to = memory(&a, sink), *there = memory(&b, target);
	CHECK(from && to && there);

	const uint32_t lengths[] = { 8, 512, 5000, LONGEST };
	struct ibv_sge read_sge = { (uintptr_t)sink, 0, to->lkey };
	struct ibv_sge write_sge = { (uintptr_t)source, 0, from->lkey };
	struct ibv_send_wr write = {
		.wr_id = 2, .sg_list = &write_sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)target, there->rkey },
	};
	struct ibv_send_wr read = {
		.wr_id = 1, .next = &write, .sg_list = &read_sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)target, there->rkey },
	};
	struct ibv_send_wr *bad;
	int wrong = 0;
	unsigned char before = 0;
	memset(target, before, sizeof target);
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t len = lengths[round % 4];
		unsigned char after = before + 1;
		memset(target, before, LONGEST);
		memset(source, after, len);
		read_sge.length = write_sge.length = len;
		CHECK(!ibv_post_send(a.qp, &read, &bad));
		done(&a);
		done(&a);
		for (uint32_t at = 0; at < len; at++)
			if (sink[at] != before) {
				wrong++;
				break;
			}
		before = after;
	}
	if (wrong)
		fprintf(stderr, "%d of %d reads returned what a later write wrote\n", wrong, ROUNDS);
	CHECK(!wrong);

	/* A message and a Write behind a Read with an invalid key. */
	struct ibv_sge receive_sge = { (uintptr_t)b.memory, 64, b.mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 7, .sg_list = &receive_sge, .num_sge = 1 }, *bad_receive;
	CHECK(!ibv_post_recv(b.qp, &receive, &bad_receive));
	struct ibv_send_wr send = {
		.wr_id = 3, .next = &write, .sg_list = &write_sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	};
	memset(target, 1, sizeof target);
	memset(source, 2, sizeof source);
	read_sge.length = write_sge.length = 64;
	read.next = &send;
	read.wr.rdma.rkey ^= 0x55;
	CHECK(!ibv_post_send(a.qp, &read, &bad));
	CHECK(next(&a).status == IBV_WC_REM_ACCESS_ERR);
	CHECK(next(&a).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(next(&a).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(next(&b).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(target[0] == 1 && b.memory[0] == 0);
	puts("fine");
	return 0;
}
