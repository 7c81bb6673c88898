/* An ordinary TCP program for `LD_PRELOAD`: every socket call that the preloaded library replaces, on sockets that are
 * rsockets. The library below uses some of the same calls on the same descriptors, which must not recurse. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(what)                                                                              \
	do {                                                                                     \
		if (!(what)) {                                                                   \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			_exit(1);                                                                \
		}                                                                                \
	} while (0)

static struct sockaddr_in address;

/* Descriptor flags and status flags, read and set, by fcntl and by ioctl. */
static void flags(int fd, int cloexec)
{
	int on = 1;
	CHECK(fcntl(fd, F_GETFD) == (cloexec ? FD_CLOEXEC : 0));
	CHECK(!fcntl(fd, F_SETFD, FD_CLOEXEC) && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(!ioctl(fd, FIONCLEX, NULL) && fcntl(fd, F_GETFD) == 0);
	CHECK(!ioctl(fd, FIOCLEX, NULL) && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	int before = fcntl(fd, F_GETFL);
	CHECK(before >= 0 && !fcntl(fd, F_SETFL, before | O_NONBLOCK));
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
	CHECK(!ioctl(fd, FIONBIO, &on) && (fcntl(fd, F_GETFL) & O_NONBLOCK));
	CHECK(!fcntl(fd, F_SETFL, before) && fcntl(fd, F_GETFL) == before);
	CHECK(fcntl(fd, F_DUPFD, 0) == -1 && fcntl(fd, F_DUPFD_CLOEXEC, 0) == -1);
}

static void options(int fd)
{
	int value = 1;
	socklen_t len = sizeof value;
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value));
	CHECK(!getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len) && value == SOCK_STREAM);
	CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
}

/* Operations that an rsocket does not have are refused, and descriptors that are no sockets work as before. */
static void refused(int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(0), file = open("/dev/null", O_RDWR);
	CHECK(epoll >= 0 && file >= 0);
	CHECK(dup(fd) == -1 && dup2(fd, file) == -1 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == -1);
	CHECK(sendfile(fd, file, NULL, 1) == -1);
	CHECK(fcntl(file, F_GETFD) == 0 && fcntl(file, F_GETFL) >= 0);
	CHECK(!close(epoll) && !close(file));
}

static void *client(void *unused)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	flags(fd, 1);
	options(fd);
	CHECK(!connect(fd, (struct sockaddr *)&address, sizeof address));
	struct iovec two[] = { { "de", 2 }, { "f", 1 } };
	struct msghdr message = { .msg_iov = two, .msg_iovlen = 2 };
	CHECK(write(fd, "a", 1) == 1 && send(fd, "b", 1, 0) == 1 && sendto(fd, "c", 1, 0, NULL, 0) == 1);
	CHECK(writev(fd, two, 2) == 3 && sendmsg(fd, &message, 0) == 3);
	char byte;
	/* The server has shut down its direction. */
	CHECK(read(fd, &byte, 1) == 0);
	CHECK(!shutdown(fd, SHUT_WR) && !close(fd) && fcntl(fd, F_GETFD) == -1 && errno == EBADF);
	return unused;
}

static void wait_readable(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	struct timespec seconds = { 30, 0 };
	struct timeval time = { 30, 0 };
	sigset_t none;
	fd_set set;
	sigemptyset(&none);
	CHECK(poll(&ready, 1, 30000) == 1 && (ready.revents & POLLIN));
	CHECK(ppoll(&ready, 1, &seconds, &none) == 1 && (ready.revents & POLLIN));
	FD_ZERO(&set);
	FD_SET(fd, &set);
	CHECK(select(fd + 1, &set, NULL, NULL, &time) == 1 && FD_ISSET(fd, &set));
	CHECK(pselect(fd + 1, &set, NULL, NULL, &seconds, &none) == 1 && FD_ISSET(fd, &set));
}

static void receive(int fd, char *to, size_t count)
{
	size_t got = 0;
	for (int way = 0; got < count; way++) {
		struct iovec one = { to + got, 1 };
		struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1 };
		ssize_t n = -1;
		switch (way % 5) {
		case 0: n = read(fd, to + got, 1); break;
		case 1: n = recv(fd, to + got, 1, 0); break;
		case 2: n = recvfrom(fd, to + got, 1, 0, NULL, NULL); break;
		case 3: n = readv(fd, &one, 1); break;
		case 4: n = recvmsg(fd, &message, 0); break;
		}
		CHECK(n == 1);
		got++;
	}
}

int main(void)
{
	pthread_t thread;
	char got[10] = "";
	struct sockaddr_in name;
	socklen_t len = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(listener >= 0);
	flags(listener, 0);
	options(listener);
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 4));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &len));
	for (int round = 0; round < 3; round++) {
		CHECK(!pthread_create(&thread, NULL, client, NULL));
		wait_readable(listener);
		int fd = round == 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) :
			 round == 1 ? accept4(listener, NULL, NULL, 0) :
				      accept(listener, NULL, NULL);
		CHECK(fd >= 0);
		len = sizeof name;
		CHECK(!getpeername(fd, (struct sockaddr *)&name, &len) && name.sin_family == AF_INET);
		flags(fd, round == 0);
		options(fd);
		refused(fd);
		wait_readable(fd);
		receive(fd, got, 9);
		CHECK(!strcmp(got, "abcdefdef"));
		CHECK(!shutdown(fd, SHUT_WR) && !pthread_join(thread, NULL) && !close(fd));
	}
	CHECK(!close(listener));
	puts("fine");
	return 0;
}
