/* Random reads on libiscsi as our own bench does them: every request has memory of its own, into which its answer goes.
 * Prints one line, "iops average N", and exits after any failure.
 *
 * equal URL BYTES DEPTH SECONDS
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

#define BLOCK 512

struct loop {
	struct iscsi_context *iscsi;
	int lun;
	uint32_t bytes;
	uint64_t places;
	double end;
	long done, flying;
};

struct request {
	struct loop *loop;
	unsigned char *memory;
};

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(struct loop *loop, const char *what)
{
	fprintf(stderr, "%s: %s\n", what, loop->iscsi ? iscsi_get_error(loop->iscsi) : "no memory");
	exit(1);
}

static void finished(struct iscsi_context *iscsi, int status, void *data, void *of);

static void ask(struct request *request)
{
	struct loop *loop = request->loop;
	uint64_t at = (uint64_t)random() % loop->places * (loop->bytes / BLOCK);
	struct scsi_task *task = iscsi_read16_task(loop->iscsi, loop->lun, at, loop->bytes, BLOCK, 0, 0, 0, 0, 0, finished,
						   request);
	if (!task || scsi_task_add_data_in_buffer(task, loop->bytes, request->memory))
		fail(loop, "a read");
	loop->flying++;
}

static void finished(struct iscsi_context *iscsi, int status, void *data, void *of)
{
	struct request *request = of;
	struct loop *loop = request->loop;
	(void)iscsi;
	if (status != SCSI_STATUS_GOOD)
		fail(loop, "what was read");
	scsi_free_scsi_task(data);
	loop->flying--;
	loop->done++;
	if (now() < loop->end)
		ask(request);
}

int main(int argc, char **argv)
{
	struct loop loop = {0};
	if (argc != 5) {
		fprintf(stderr, "equal URL BYTES DEPTH SECONDS\n");
		return 2;
	}
	loop.bytes = strtoul(argv[2], NULL, 10);
	long depth = strtol(argv[3], NULL, 10);
	loop.iscsi = iscsi_create_context("iqn.2026-11.org.verbena:equal");
	if (!loop.iscsi)
		fail(&loop, "a context");
	struct iscsi_url *url = iscsi_parse_full_url(loop.iscsi, argv[1]);
	if (!url)
		fail(&loop, argv[1]);
	loop.lun = url->lun;
	iscsi_set_targetname(loop.iscsi, url->target);
	iscsi_set_session_type(loop.iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(loop.iscsi, ISCSI_HEADER_DIGEST_NONE);
	if (iscsi_full_connect_sync(loop.iscsi, url->portal, url->lun))
		fail(&loop, "login");
	struct scsi_task *task = iscsi_readcapacity16_sync(loop.iscsi, loop.lun);
	struct scsi_readcapacity16 *capacity = task ? scsi_datain_unmarshall(task) : NULL;
	if (!capacity)
		fail(&loop, "its capacity");
	loop.places = (capacity->returned_lba + 1) * BLOCK / loop.bytes;
	scsi_free_scsi_task(task);
	double begun = now();
	loop.end = begun + atof(argv[4]);
	for (long i = 0; i < depth; i++) {
		struct request *request = malloc(sizeof *request);
		unsigned char *memory = calloc(1, loop.bytes);
		if (!request || !memory)
			return 1;
		*request = (struct request){&loop, memory};
		ask(request);
	}
	while (loop.flying > 0) {
		struct pollfd fd = {iscsi_get_fd(loop.iscsi), iscsi_which_events(loop.iscsi), 0};
		if (poll(&fd, 1, -1) < 0 || iscsi_service(loop.iscsi, fd.revents) < 0)
			fail(&loop, "waiting");
	}
	printf("iops average %ld \n", (long)(loop.done / (now() - begun)));
	return 0;
}
