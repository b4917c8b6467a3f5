// SPDX-License-Identifier: Apache-2.0
/* An echo server over io_uring: it takes so many connections, and says how many requests of each kind completed with what. */
#include <arpa/inet.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum kind { ACCEPT, RECEIVE, SEND, KINDS };

struct request {
	enum kind kind;
	int fd, len_bytes;
	char buffer[4096];
};

static const char *const names[] = {"accept", "recv", "send"};
static struct io_uring ring;

static void submit(struct request *request, enum kind kind, int flags)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

	request->kind = kind;
	if (kind == ACCEPT)
		io_uring_prep_accept(sqe, request->fd, NULL, NULL, 0);
	else if (kind == RECEIVE)
		io_uring_prep_recv(sqe, request->fd, request->buffer, sizeof(request->buffer), 0);
	else
		io_uring_prep_send(sqe, request->fd, request->buffer, request->len_bytes, 0);
	sqe->flags |= flags;
	io_uring_sqe_set_data(sqe, request);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct request listening = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
	int left = atoi(argv[1]), flags = argc > 2 ? IOSQE_ASYNC : 0, open = 0, accepted = 0;
	socklen_t size = sizeof(address);
	struct io_uring_cqe *cqe;

	if (io_uring_queue_init(64, &ring, 0) || bind(listening.fd, (void *)&address, size) || listen(listening.fd, 64))
		return 1;
	getsockname(listening.fd, (void *)&address, &size);
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	submit(&listening, ACCEPT, 0);
	do {
		struct request *request;

		io_uring_submit_and_wait(&ring, 1);
		if (io_uring_peek_cqe(&ring, &cqe))
			continue;
		request = io_uring_cqe_get_data(cqe);
		printf("%s %d\n", names[request->kind], cqe->res);
		if (request->kind == ACCEPT) {
			struct request *connection = calloc(1, sizeof(*connection));

			connection->fd = cqe->res;
			submit(connection, RECEIVE, flags);
			open++;
			if (++accepted < left)
				submit(&listening, ACCEPT, 0);
		} else if (request->kind == RECEIVE && cqe->res > 0) {
			request->len_bytes = cqe->res;
			submit(request, SEND, flags);
		} else if (request->kind == SEND) {
			submit(request, RECEIVE, flags);
		} else {
			close(request->fd);
			open--;
		}
		io_uring_cqe_seen(&ring, cqe);
	} while (open || accepted < left);
	return 0;
}
