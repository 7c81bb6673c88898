/* A library that needs libibverbs by a hashed name, as those in Python wheels do; and, with COPY, the copy of that name. */
#include <stddef.h>

#ifdef COPY
void **ibv_get_device_list(int *count)
{
	*count = 0;
	return NULL;
}
#else
void **ibv_get_device_list(int *count);

int bundled_count(void)
{
	int count = 0;
	ibv_get_device_list(&count);
	return count;
}
#endif
