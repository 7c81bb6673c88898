/* Opens libraries by the names that it is given, and checks that each leads to Verbena's libibverbs, which is in the process once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *name, const char *why)
{
	printf("%s: %s\n", name, why);
	exit(1);
}

int main(int argc, char **argv)
{
	void *first = NULL;
	for (int at = 1; at < argc; at++) {
		const char *name = argv[at];
		void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
		if (!library)
			fail(name, dlerror());
		/* Exported by Verbena's library alone. */
		if (!dlsym(library, "verbena_sysfs_root"))
			fail(name, "is not Verbena's");
		void **(*list)(int *) = (void **(*)(int *))dlsym(library, "ibv_get_device_list");
		if (!list || (first && (void *)list != first))
			fail(name, "is a second copy");
		first = (void *)list;
		int count = 0;
		void **devices = list(&count);
		const char *(*device_name)(void *) = (const char *(*)(void *))dlsym(library, "ibv_get_device_name");
		if (!devices || count != 1 || strcmp(device_name(devices[0]), "verbena0"))
			fail(name, "does not list verbena0");
		/* Of a library that needs another by a hashed name, through its own binding. */
		int (*used)(void) = (int (*)(void))dlsym(library, "bundled_count");
		if (used && used() != 1)
			fail(name, "is bound to the bundled copy");
	}
	printf("all %d names lead to Verbena\n", argc - 1);
	return 0;
}
