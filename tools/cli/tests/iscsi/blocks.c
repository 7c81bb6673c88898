/*
 * An initiator that is not ours, in as few lines as libiscsi allows: `blocks read URL` writes a whole unit to standard output,
 * `blocks write URL` writes standard input to the unit's first blocks. Anything that fails is said, and ends it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

enum { BLOCKS = 64 };

static void fail(struct iscsi_context *iscsi, const char *what)
{
	fprintf(stderr, "%s: %s\n", what, iscsi ? iscsi_get_error(iscsi) : "no memory");
	exit(1);
}

int main(int argc, char **argv)
{
	struct iscsi_context *iscsi = iscsi_create_context("iqn.2026-01.test.verbena:other");
	struct iscsi_url *url;
	struct scsi_task *task;
	struct scsi_readcapacity16 *capacity;
	unsigned long long lba, blocks;
	unsigned size;

	if (argc != 3 || !iscsi)
		fail(NULL, "usage: blocks read|write URL");
	url = iscsi_parse_full_url(iscsi, argv[2]);
	if (!url)
		fail(iscsi, "the address");
	iscsi_set_targetname(iscsi, url->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	if (iscsi_full_connect_sync(iscsi, url->portal, url->lun))
		fail(iscsi, "connecting");
	task = iscsi_readcapacity16_sync(iscsi, url->lun);
	capacity = task ? scsi_datain_unmarshall(task) : NULL;
	if (!capacity)
		fail(iscsi, "capacity");
	blocks = capacity->returned_lba + 1;
	size = capacity->block_length;
	scsi_free_scsi_task(task);
	for (lba = 0; lba < blocks; lba += BLOCKS) {
		unsigned count = blocks - lba < BLOCKS ? blocks - lba : BLOCKS;
		unsigned len = count * size;

		if (!strcmp(argv[1], "read")) {
			task = iscsi_read16_sync(iscsi, url->lun, lba, len, size, 0, 0, 0, 0, 0);
			if (!task || task->status != SCSI_STATUS_GOOD || task->datain.size != (int)len)
				fail(iscsi, "reading");
			fwrite(task->datain.data, 1, len, stdout);
		} else {
			unsigned char *data = calloc(1, len);
			unsigned got = data ? fread(data, 1, len, stdin) : 0;

			if (got == 0)
				break;
			task = iscsi_write16_sync(iscsi, url->lun, lba, data, got, size, 0, 0, 0, 0, 0);
			if (!task || task->status != SCSI_STATUS_GOOD)
				fail(iscsi, "writing");
			free(data);
		}
		scsi_free_scsi_task(task);
	}
	if (iscsi_logout_sync(iscsi))
		fail(iscsi, "leaving");
	return fflush(stdout) ? 1 : 0;
}
