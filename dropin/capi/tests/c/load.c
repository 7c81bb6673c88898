/* The libraries are loaded by name with RTLD_LOCAL, in one order or the other, and unloaded: there is one engine. */
#include "common.h"
#include <dlfcn.h>

typedef struct ibv_device **list_fn(int *);
typedef struct ibv_context *open_fn(struct ibv_device *);
typedef int close_fn(struct ibv_context *);

static struct ibv_device *first(void *library)
{
	list_fn *list = (list_fn *)dlsym(library, "ibv_get_device_list");
	CHECK(list);
	struct ibv_device **all = list(NULL);
	CHECK(all && all[0]);
	return all[0];
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	void *one = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!one)
		puts(dlerror());
	CHECK(one);
	void *two = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
	CHECK(two);
	/* The dependency of one library, and the library loaded by name. */
	struct ibv_device *device = first(one);
	CHECK(device == first(two));
	open_fn *open = (open_fn *)dlsym(two, "ibv_open_device");
	close_fn *close_it = (close_fn *)dlsym(one, "ibv_close_device");
	struct ibv_context *context = open(device);
	CHECK(context);
	CHECK(!close_it(context));
	CHECK(context = open(device));
	CHECK(!dlclose(two));
	CHECK(!dlclose(one));
	usleep(20000);
	one = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	CHECK(one);
	CHECK(first(one) == device);
	puts("fine");
	return 0;
}
