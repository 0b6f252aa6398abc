// The least that a gateway can do for a request: what the kernel takes for it, with next to no code of its own.
//   bare PORT            answers whatever it reads with the same 429
//   bare PORT UPSTREAM   passes the bytes of each connection to one of its own to the upstream, and back
// One thread, epoll, edge-triggered; one read and one write for each event, as nginx and flowgate need for small messages.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#define MAXFD 65536
static const char answer[] =
    "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-type: application/problem+json\r\n"
    "ratelimit-policy: \"limit\";q=10;w=1\r\nratelimit: \"limit\";r=0;t=1\r\n"
    "x-request-id: 0123456789abcdef0123456789abcdef\r\ncontent-length: 64\r\n"
    "date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n"
    "{\"title\":\"Too Many Requests\",\"status\":429,\"detail\":\"rate limit\"}\n";
static int other[MAXFD], ep;

static struct sockaddr_in local(const char *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static void watch(int fd) {
    int one = 1;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static void welcome(int listener, const char *upstream) {
    int client = accept4(listener, 0, 0, SOCK_NONBLOCK);
    if (client < 0 || client >= MAXFD)
        return;
    if (upstream) {
        struct sockaddr_in a = local(upstream);
        int server = socket(AF_INET, SOCK_STREAM, 0);
        if (server < 0 || server >= MAXFD || connect(server, (void *)&a, sizeof a)) {
            close(client);
            return;
        }
        fcntl(server, F_SETFL, O_NONBLOCK);
        other[server] = client;
        other[client] = server;
        watch(server);
    }
    watch(client);
}

int main(int argc, char **argv) {
    const char *upstream = argc > 2 ? argv[2] : 0;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = local(argc > 1 ? argv[1] : "0");
    struct epoll_event events[512], e = {.events = EPOLLIN, .data.fd = listener};
    static char bytes[65536];
    ep = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&a, sizeof a) || listen(listener, 4096))
        return 1;
    epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(ep, events, 512, 60000);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                welcome(listener, upstream);
                continue;
            }
            if (!(events[i].events & EPOLLIN))
                continue;
            ssize_t got = recv(fd, bytes, sizeof bytes, 0);
            if (got < 0 && errno == EAGAIN)
                continue;
            if (got <= 0) {
                // The other one reads its end then, and is closed by itself.
                if (upstream && other[fd] >= 0) {
                    shutdown(other[fd], SHUT_RDWR);
                    other[other[fd]] = -1;
                }
                close(fd);
            } else if (upstream && other[fd] < 0)
                continue;
            else if (upstream)
                send(other[fd], bytes, got, MSG_NOSIGNAL);
            else
                send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
        }
    }
}
