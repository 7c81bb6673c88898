/* Threads that wait at rsockets are interrupted or cancelled, or their peers are killed, stopped or exit without closing. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <time.h>

#include "common.h"

/* Seconds within which the loss of a killed peer must be reported. */
#define SOON 10
#define SMALL_SENDS 5000

static int ours, theirs;

static int listening(struct sockaddr_in *at)
{
	socklen_t len = sizeof *at;
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(listener >= 0);
	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	CHECK(!rbind(listener, (struct sockaddr *)at, len));
	CHECK(!rlisten(listener, 4));
	CHECK(!rgetsockname(listener, (struct sockaddr *)at, &len));
	return listener;
}

static int connected(const struct sockaddr_in *to)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(socket >= 0);
	CHECK(!rconnect(socket, (const struct sockaddr *)to, sizeof *to));
	return socket;
}

static void *connect_theirs(void *to)
{
	theirs = connected(to);
	return NULL;
}

/* Both ends in this process. */
static void join_sockets(void)
{
	struct sockaddr_in at;
	pthread_t thread;
	int listener = listening(&at);
	CHECK(!pthread_create(&thread, NULL, connect_theirs, &at));
	CHECK((ours = raccept(listener, NULL, NULL)) >= 0);
	CHECK(!pthread_join(thread, NULL));
	CHECK(!rclose(listener));
}

/* A child process that connects to this one and runs `work`. */
static pid_t child(void (*work)(int socket), int *socket)
{
	struct sockaddr_in at;
	int pipes[2];
	CHECK(!pipe(pipes));
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		CHECK(read(pipes[0], &at, sizeof at) == sizeof at);
		work(connected(&at));
		exit(0);
	}
	int listener = listening(&at);
	CHECK(write(pipes[1], &at, sizeof at) == sizeof at);
	CHECK((*socket = raccept(listener, NULL, NULL)) >= 0);
	CHECK(!rclose(listener));
	close(pipes[0]);
	close(pipes[1]);
	return pid;
}

/* A server of another protocol: it accepts with an MPA reply whose private data is not that of rsockets. */
static void *foreign(void *listener)
{
	static const char reply[] = "MPA ID Rep Frame\x10\x02\0\x14\0\x01\0\x01\x01\0\0\0 rsocket data";
	char request[20 + 512];
	size_t want = 20, got = 0;
	int socket = accept(*(int *)listener, NULL, NULL);
	CHECK(socket >= 0);
	while (got < want) {
		ssize_t n = read(socket, request + got, want - got);
		CHECK(n > 0);
		got += n;
		if (got == 20 && want == 20)
			want += (unsigned char)request[18] << 8 | (unsigned char)request[19];
	}
	CHECK(write(socket, reply, 20 + 0x14) == 20 + 0x14);
	/* Until the other side has closed the connection. */
	while (read(socket, request, sizeof request) > 0)
		;
	close(socket);
	return NULL;
}

static void strangers(void)
{
	for (int waits = 0; waits < 2; waits++) {
		struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
		socklen_t len = sizeof at;
		int error = 0, listener = socket(AF_INET, SOCK_STREAM, 0);
		pthread_t thread;
		CHECK(listener >= 0 && !bind(listener, (struct sockaddr *)&at, len) && !listen(listener, 1));
		CHECK(!getsockname(listener, (struct sockaddr *)&at, &len));
		CHECK(!pthread_create(&thread, NULL, foreign, &listener));
		int mine = rsocket(AF_INET, SOCK_STREAM, 0);
		CHECK(mine >= 0);
		if (waits) {
			CHECK(rconnect(mine, (struct sockaddr *)&at, sizeof at) == -1 && errno == EPROTO);
		} else {
			/* As rstream does: any event but POLLOUT is treated as an error of rpoll. */
			struct pollfd ready = { .fd = mine, .events = POLLOUT };
			CHECK(!rfcntl(mine, F_SETFL, O_NONBLOCK));
			CHECK(rconnect(mine, (struct sockaddr *)&at, sizeof at) == -1 && errno == EINPROGRESS);
			CHECK(rpoll(&ready, 1, 20000) == 1 && ready.revents == POLLOUT);
			len = sizeof error;
			CHECK(!rgetsockopt(mine, SOL_SOCKET, SO_ERROR, &error, &len) && error == EPROTO);
		}
		CHECK(!rclose(mine) && !pthread_join(thread, NULL) && !close(listener));
	}
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

struct waiting {
	char byte;
	ssize_t got;
	int error;
};

static void *receive_one(void *argument)
{
	struct waiting *waiting = argument;
	waiting->got = rrecv(ours, &waiting->byte, 1, 0);
	waiting->error = errno;
	return NULL;
}

static void *wait_for_one(void *unused)
{
	struct pollfd fd = { ours, POLLIN, 0 };
	rpoll(&fd, 1, -1);
	return unused;
}

/* Signals a thread that waits for a byte, until the handler has run in it. */
static void disturb(int flags, struct waiting *waiting, pthread_t *thread)
{
	struct sigaction action = { .sa_handler = count_signal, .sa_flags = flags };
	CHECK(!sigaction(SIGUSR1, &action, NULL));
	signals = 0;
	CHECK(!pthread_create(thread, NULL, receive_one, waiting));
	usleep(50000);
	CHECK(!pthread_kill(*thread, SIGUSR1));
	while (!signals)
		usleep(1000);
}

static void signals_interrupt(void)
{
	struct waiting waiting = { 0 };
	pthread_t thread;
	disturb(0, &waiting, &thread);
	CHECK(!pthread_join(thread, NULL));
	CHECK(waiting.got == -1 && waiting.error == EINTR);
	disturb(SA_RESTART, &waiting, &thread);
	usleep(20000);
	CHECK(rsend(theirs, "r", 1, 0) == 1);
	CHECK(!pthread_join(thread, NULL));
	CHECK(waiting.got == 1 && waiting.byte == 'r');
}

static void cancel(void *(*call)(void *), void *argument, int micros)
{
	pthread_t thread;
	void *result;
	CHECK(!pthread_create(&thread, NULL, call, argument));
	usleep(micros);
	CHECK(!pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
}

static void threads_are_cancelled(void)
{
	struct waiting waiting = { 0 };
	char byte;
	for (int round = 0; round < 20; round++) {
		cancel(receive_one, &waiting, round * 200);
		cancel(wait_for_one, NULL, round * 200);
		CHECK(rsend(theirs, "x", 1, 0) == 1);
		CHECK(rrecv(ours, &byte, 1, 0) == 1 && byte == 'x');
		CHECK(rsend(ours, "y", 1, 0) == 1);
		CHECK(rrecv(theirs, &byte, 1, 0) == 1 && byte == 'y');
	}
}

static void say_and_sleep(int socket)
{
	CHECK(rsend(socket, "here", 4, 0) == 4);
	for (;;)
		pause();
}

static void *kill_soon(void *pid)
{
	usleep(100000);
	CHECK(!kill(*(pid_t *)pid, SIGKILL));
	return NULL;
}

/* A thread that reads or writes gets an error when the peer is killed. */
static void a_killed_peer(int writes)
{
	static char bytes[1 << 20];
	int socket;
	struct timespec before, after;
	pthread_t thread;
	pid_t pid = child(say_and_sleep, &socket);
	CHECK(rrecv(socket, bytes, 4, MSG_WAITALL) == 4);
	CHECK(!clock_gettime(CLOCK_MONOTONIC, &before));
	CHECK(!pthread_create(&thread, NULL, kill_soon, &pid));
	ssize_t got;
	do
		got = writes ? rsend(socket, bytes, sizeof bytes, 0) : rrecv(socket, bytes, 4, 0);
	while (writes && got > 0);
	CHECK(got == -1 && (errno == ECONNRESET || (writes && errno == EPIPE)));
	CHECK(!clock_gettime(CLOCK_MONOTONIC, &after));
	CHECK(after.tv_sec - before.tv_sec < SOON);
	CHECK(!pthread_join(thread, NULL));
	CHECK(joined(pid) == 255);
	CHECK(!rclose(socket));
}

static void send_and_leave(int socket)
{
	for (int sent = 0; sent < SMALL_SENDS; sent++)
		CHECK(rsend(socket, "0123456789", 10, 0) == 10);
}

/* Small sends may still be queued for coalescing: they are sent when the program exits, and the peer reads the end after them. */
static void a_peer_that_leaves(void (*how)(int socket))
{
	char bytes[1000];
	int socket, all = 0;
	ssize_t got;
	pid_t pid = child(how, &socket);
	while ((got = rrecv(socket, bytes, sizeof bytes, 0)) > 0) {
		for (ssize_t at = 0; at < got; at++)
			CHECK(bytes[at] == '0' + (all + at) % 10);
		all += got;
	}
	CHECK(got == 0 && all == SMALL_SENDS * 10);
	CHECK(joined(pid) == 0);
	CHECK(!rclose(socket));
}

static void send_close_and_leave(int socket)
{
	send_and_leave(socket);
	CHECK(!rclose(socket));
}

#define LONG_SEND (1 << 20)

static void stop_and_read(int socket)
{
	static char bytes[LONG_SEND + 1];
	CHECK(!raise(SIGSTOP));
	CHECK(rrecv(socket, bytes, sizeof bytes, MSG_WAITALL) == LONG_SEND);
	CHECK(bytes[0] == 1 && bytes[LONG_SEND - 1] == 2);
}

/* rclose does not wait for a peer that is stopped, and the peer reads everything when it continues. */
static void a_stopped_peer(void)
{
	static char bytes[LONG_SEND] = { [0] = 1, [LONG_SEND - 1] = 2 };
	struct timespec before, after;
	int socket, status;
	pid_t pid = child(stop_and_read, &socket);
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	CHECK(rsend(socket, bytes, sizeof bytes, 0) == sizeof bytes);
	CHECK(!clock_gettime(CLOCK_MONOTONIC, &before));
	CHECK(!rclose(socket));
	CHECK(!clock_gettime(CLOCK_MONOTONIC, &after));
	CHECK(after.tv_sec - before.tv_sec < 4);
	CHECK(!kill(pid, SIGCONT));
	CHECK(joined(pid) == 0);
}

int main(void)
{
	a_stopped_peer();
	for (int round = 0; round < 3; round++) {
		a_peer_that_leaves(send_and_leave);
		a_peer_that_leaves(send_close_and_leave);
		a_killed_peer(0);
		a_killed_peer(1);
	}
	join_sockets();
	signals_interrupt();
	threads_are_cancelled();
	CHECK(!rclose(ours));
	CHECK(!rclose(theirs));
	strangers();
	puts("fine");
	return 0;
}
