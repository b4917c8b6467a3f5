// SPDX-License-Identifier: Apache-2.0
/* A program into which OpenSSL is linked: a client and a server in a process each, which say how many bytes they passed. */
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void serve(int fd, SSL_CTX *context)
{
	static char buffer[70000];
	size_t len_bytes, total = 0;
	SSL *ssl = SSL_new(context);

	SSL_set_fd(ssl, fd);
	while (SSL_accept(ssl) == 1 && SSL_read_ex(ssl, buffer, sizeof(buffer), &len_bytes))
		total += len_bytes;
	printf("%d read %zu\n", getpid(), total);
}

static void ask(int fd, SSL_CTX *context)
{
	static char text[5000];
	int total = 0;
	SSL *ssl = SSL_new(context);

	SSL_set_fd(ssl, fd);
	if (SSL_connect(ssl) != 1)
		return;
	for (int number = 0; number < 5; number++)
		total += SSL_write(ssl, text, 1000 * number + 1);
	SSL_shutdown(ssl);
	printf("%d write %d\n", getpid(), total);
}

int main(int argc, char **argv)
{
	SSL_CTX *ours = SSL_CTX_new(TLS_server_method());
	char path[4096];
	int ends[2];

	if (argc < 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return 1;
	snprintf(path, sizeof(path), "%s/certificate", argv[1]);
	SSL_CTX_use_certificate_file(ours, path, SSL_FILETYPE_PEM);
	snprintf(path, sizeof(path), "%s/key", argv[1]);
	SSL_CTX_use_PrivateKey_file(ours, path, SSL_FILETYPE_PEM);
	SSL_CTX_set_max_proto_version(ours,
				      TLS1_2_VERSION); /* of 1.3, it would send a ticket to a client that is gone */
	if (!fork()) {
		close(ends[0]);
		serve(ends[1], ours);
		return 0;
	}
	close(ends[1]);
	ask(ends[0], SSL_CTX_new(TLS_client_method()));
	close(ends[0]);
	wait(NULL);
	return 0;
}
