/* Reads sysfs files of the adapter by every function of C that programs use. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define DEVICE "/sys/class/infiniband/verbena0"
#define STATE DEVICE "/ports/1/state"

#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("line %d: %s\n", __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

static int found(const char *path, const char *entry)
{
	DIR *dir = opendir(path);
	int seen = 0;
	CHECK(dir);
	for (struct dirent *next; (next = readdir(dir));)
		seen |= !strcmp(next->d_name, entry);
	closedir(dir);
	return seen;
}

static void same(const char *got, const char *wanted)
{
	if (strcmp(got, wanted)) {
		printf("%s instead of %s\n", got, wanted);
		exit(1);
	}
}

static const char *by_open(const char *path)
{
	static char text[256];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	ssize_t got = read(fd, text, sizeof text - 1);
	CHECK(got >= 0);
	text[got] = 0;
	close(fd);
	return text;
}

static const char *by_fopen(const char *path)
{
	static char text[256];
	FILE *file = fopen(path, "r");
	CHECK(file);
	size_t got = fread(text, 1, sizeof text - 1, file);
	text[got] = 0;
	fclose(file);
	return text;
}

/* The counter's file has its current value: it is not that of the directory, which always says zero. */
static void current(int fd)
{
	char link[32], name[PATH_MAX], text[4];
	CHECK(fd >= 0);
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, name, sizeof name - 1);
	CHECK(length > 0);
	name[length] = 0;
	CHECK(!strncmp(name, "/memfd:", 7));
	CHECK(read(fd, text, sizeof text) == 2 && !memcmp(text, "0\n", 2));
}

int main(void)
{
	char text[PATH_MAX];
	struct stat seen;
	struct statfs system;

	same(by_open(STATE), "4: ACTIVE\n");
	same(by_fopen(STATE), "4: ACTIVE\n");
	same(by_open(DEVICE "/ports/1/gid_attrs/types/3"), "RoCE v2\n");
	CHECK(strlen(by_open(DEVICE "/ports/1/gid_attrs/ndevs/1")) > 1);
	same(by_open(DEVICE "/ports/1/counters/port_xmit_data"), "0\n");
	same(by_fopen(DEVICE "/ports/1/hw_counters/sent_pkts"), "0\n");
	same(by_open("/sys//class/./infiniband/verbena0/ports/1/link_layer"), "Ethernet\n");
	same(by_open("/sys/class/infiniband_verbs/uverbs0/ibdev"), "verbena0\n");
	same(by_open("/sys/class/infiniband_verbs/uverbs0/device/class"), "0x020000\n");
	/* As some programs find the bus device of an adapter. */
	same(by_open(DEVICE "/../../vendor"), "0x5642\n");

	CHECK(found("/sys/class/infiniband", "verbena0"));
	CHECK(found("/sys/class/infiniband_verbs", "uverbs0"));
	CHECK(found(DEVICE "/ports/1/gids", "15"));
	CHECK(found(DEVICE "/device", "numa_node"));
	struct dirent **list;
	CHECK(scandir(DEVICE "/ports", &list, NULL, alphasort) == 3);
	same(list[2]->d_name, "1");
	glob_t all;
	CHECK(glob("/sys/class/infiniband/*/ports/*/state", 0, NULL, &all) == 0 && all.gl_pathc >= 1);
	CHECK(glob(DEVICE "/ports/1/counters/port_xmit_dat*", 0, NULL, &all) == 0 && all.gl_pathc == 1);
	current(open(all.gl_pathv[0], O_RDONLY));
	FILE *stream = fopen(all.gl_pathv[0], "re");
	CHECK(stream && fcntl(fileno(stream), F_GETFD) == FD_CLOEXEC);
	current(fileno(stream));

	CHECK(stat(DEVICE, &seen) == 0 && S_ISDIR(seen.st_mode));
	CHECK(lstat(DEVICE, &seen) == 0 && S_ISLNK(seen.st_mode));
	CHECK(stat(DEVICE "/no_such", &seen) == -1);
	CHECK(access(DEVICE "/node_guid", R_OK) == 0);
	CHECK(statfs(DEVICE, &system) == 0 && system.f_type == SYSFS_MAGIC);
	ssize_t length = readlink(DEVICE, text, sizeof text - 1);
	CHECK(length > 0);
	text[length] = 0;
	same(text, "../../devices/verbena/verbena0/infiniband/verbena0");
	CHECK(realpath(DEVICE "/device", text));
	same(text, "/sys/devices/verbena/verbena0");
	CHECK(stat(text, &seen) == 0 && S_ISDIR(seen.st_mode));
	char *whole = realpath(DEVICE, NULL);
	CHECK(whole);
	same(whole, "/sys/devices/verbena/verbena0/infiniband/verbena0");
	same(by_open("/sys/devices/verbena/verbena0/device"), "0x0001\n");

	/* Relative to a directory. */
	int folder = open(DEVICE "/ports/1", O_RDONLY | O_DIRECTORY);
	CHECK(folder >= 0);
	int file = openat(folder, "phys_state", O_RDONLY);
	CHECK(file >= 0 && read(file, text, 5) == 5 && !memcmp(text, "5: Li", 5));
	file = openat(folder, "hw_counters/sent_pkts", O_RDONLY | O_CLOEXEC);
	current(file);
	CHECK(fcntl(file, F_GETFD) == FD_CLOEXEC);
	CHECK(chdir(DEVICE) == 0 && access("ports/1/rate", R_OK) == 0);
	current(open("ports/1/counters/port_rcv_data", O_RDONLY));

	/* What is not the adapter's is untouched. */
	CHECK(access("/sys/class/net", R_OK) == 0 && access("/sys/class/infiniband2", F_OK) == -1);
	CHECK(stat("/dev/infiniband/uverbs0", &seen) == 0 && S_ISCHR(seen.st_mode));
	puts("all files read");
	return 0;
}
