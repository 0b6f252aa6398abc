// Cheapest-possible HTTP/1.1 keep-alive upstream: one thread, epoll, no allocation per request.
//   upstream PORT [-t TSFILE] [-C core]
// GET /s/<bytes>... -> body of that many bytes; anything else -> 14-byte body.
// -t: appends the CLOCK_MONOTONIC ns arrival time (u64) of every request to an mmapped file
//     (first u64 = count) so that admission and pacing are judged where they matter: at the upstream.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#define MAXFD 40000
#define TSMAX (8u << 20)
struct c {
    int fd;
    int n;
    char *b;
    size_t out_off, out_len;
    size_t hlen;
    char h[160];
};
static struct c *C[MAXFD];
static char *body;
static size_t BODY = 4u << 20;
static int ep;
static uint64_t *ts;
static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static void drop(struct c *c) {
    C[c->fd] = 0;
    close(c->fd);
    free(c->b);
    free(c);
}
static int pump(struct c *c) { // 0 done, 1 blocked, -1 dead
    while (c->out_off < c->out_len) {
        struct iovec v[2];
        int k = 0;
        if (c->out_off < c->hlen) {
            v[k].iov_base = c->h + c->out_off;
            v[k++].iov_len = c->hlen - c->out_off;
            v[k].iov_base = body;
            v[k++].iov_len = c->out_len - c->hlen;
        } else {
            v[k].iov_base = body + (c->out_off - c->hlen);
            v[k++].iov_len = c->out_len - c->out_off;
        }
        ssize_t w =
            k == 2 && v[1].iov_len == 0 ? write(c->fd, v[0].iov_base, v[0].iov_len) : writev(c->fd, v, k);
        if (w < 0) {
            if (errno == EAGAIN) {
                struct epoll_event e = {EPOLLIN | EPOLLOUT, {.fd = c->fd}};
                epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
                return 1;
            }
            return -1;
        }
        c->out_off += w;
    }
    return 0;
}
static int serve(struct c *c) {
    for (;;) {
        char *e = c->n >= 4 ? memmem(c->b, c->n, "\r\n\r\n", 4) : 0;
        if (!e)
            return 0;
        if (ts && ts[0] < TSMAX - 1) {
            ts[1 + ts[0]] = now();
            ts[0]++;
        }
        size_t sz = 14;
        char *p = memchr(c->b, '/', e - c->b);
        if (p) {
            char *s = memmem(p, e - p < 64 ? e - p : 64, "/s/", 3);
            if (s)
                sz = strtoul(s + 3, 0, 10);
        }
        if (sz > BODY)
            sz = BODY;
        int used = e + 4 - c->b;
        // drain request bodies only if already here (bench sends GETs)
        memmove(c->b, c->b + used, c->n - used);
        c->n -= used;
        if (sz == 14) {
            static const char r[] =
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\r\nHello, World!\n";
            memcpy(c->h, r, sizeof r - 1);
            c->hlen = sizeof r - 1;
            c->out_len = c->hlen;
        } else {
            c->hlen = sprintf(
                c->h, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n", sz);
            c->out_len = c->hlen + sz;
        }
        c->out_off = 0;
        int r = pump(c);
        if (r)
            return r;
    }
}
int main(int ac, char **av) {
    signal(SIGPIPE, SIG_IGN);
    int port = atoi(av[1]);
    for (int i = 2; i < ac; i++) {
        if (!strcmp(av[i], "-t")) {
            int f = open(av[++i], O_RDWR | O_CREAT | O_TRUNC, 0644);
            if (ftruncate(f, TSMAX * 8ull))
                return 1;
            ts = mmap(0, TSMAX * 8ull, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
        } else if (!strcmp(av[i], "-C")) {
            cpu_set_t s;
            CPU_ZERO(&s);
            CPU_SET(atoi(av[++i]), &s);
            sched_setaffinity(0, sizeof s, &s);
        }
    }
    body = malloc(BODY);
    memset(body, 'x', BODY);
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, 4);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, 4096)) {
        perror("bind");
        return 1;
    }
    ep = epoll_create1(0);
    struct epoll_event e = {EPOLLIN, {.fd = l}};
    epoll_ctl(ep, EPOLL_CTL_ADD, l, &e);
    struct epoll_event ev[256];
    for (;;) {
        int n = epoll_wait(ep, ev, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = ev[i].data.fd;
            if (fd == l) {
                int k = accept4(l, 0, 0, SOCK_NONBLOCK);
                if (k < 0)
                    continue;
                if (k >= MAXFD) {
                    close(k);
                    continue;
                }
                setsockopt(k, IPPROTO_TCP, TCP_NODELAY, &one, 4);
                struct c *c = calloc(1, sizeof *c);
                c->fd = k;
                c->b = malloc(16384);
                C[k] = c;
                struct epoll_event q = {EPOLLIN, {.fd = k}};
                epoll_ctl(ep, EPOLL_CTL_ADD, k, &q);
                continue;
            }
            struct c *c = C[fd];
            if (!c)
                continue;
            if (ev[i].events & EPOLLOUT) {
                int r = pump(c);
                if (r < 0) {
                    drop(c);
                    continue;
                }
                if (r == 1)
                    continue;
                struct epoll_event q = {EPOLLIN, {.fd = fd}};
                epoll_ctl(ep, EPOLL_CTL_MOD, fd, &q);
                if (serve(c) < 0) {
                    drop(c);
                    continue;
                }
            }
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                ssize_t r = read(fd, c->b + c->n, 16384 - c->n);
                if (r <= 0) {
                    if (r < 0 && errno == EAGAIN)
                        continue;
                    drop(c);
                    continue;
                }
                c->n += r;
                if (c->out_off >= c->out_len && serve(c) < 0)
                    drop(c);
            }
        }
    }
}
