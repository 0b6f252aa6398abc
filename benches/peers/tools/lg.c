// Load generator: closed loop (-r 0) or open loop at a constant offered rate (coordinated-omission-free:
// latency runs from the scheduled time). HTTP/1.1, plain or TLS. JSON on stdout.
//  lg HOST:PORT -c conns -d secs [-r rps] [-P poisson] [-w warm_secs] [-p path-template with %d] [-N npaths]
//     [-K nkeys: X-Key header rotates] [-n new connection per request] [-B fields of a browser] [-s TLS] [-T records.bin] [-i idle
//     mode] [-C core] [-S seed]
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
typedef uint64_t u64;
typedef uint32_t u32;
// What Chromium sends when a person opens a page, and a cookie.
static const char BROWSER[] =
    "Connection: keep-alive\r\n"
    "sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n"
    "sec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\n"
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 "
    "Safari/537.36\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n"
    "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n"
    "Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\n"
    "Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; _ga=GA1.1.123456789.1700000000\r\n";
static const char *fields = "User-Agent: lg/1\r\nAccept: */*\r\n";
static u64 now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}
struct rec {
    u64 sched, send, done;
    u32 status, conn;
};
enum { IDLE, CONNECTING, BUSY, DEAD };
struct conn {
    int fd, st;
    SSL *ssl;
    u64 sched, send;
    int hn;
    char h[2048];
    int inbody;
    long left;
    int chunked, cst;
    long csz;
    int status, closing;
    int ri;
};
static struct sockaddr_in A;
static SSL_CTX *ctx;
static int ep, nc = 10, newc;
static struct conn *C;
static char **RQ;
static int *RL, nrq = 1, rqi;
static u32 *lat, *svc;
static size_t nl, cap;
static u64 st_cnt[1000], errs, reconn, bytes, sentn;
static u64 t_meas, t_end;
static FILE *tf;
static char rb[1 << 18];
static int *iq;
static int ih, it, icap;
static u64 *pq;
static size_t ph, pt, pcap;
static void ipush(int i) {
    iq[it] = i;
    it = (it + 1) % icap;
}
static int ipop(void) {
    if (ih == it)
        return -1;
    int i = iq[ih];
    ih = (ih + 1) % icap;
    return i;
}
static int dial(struct conn *c, int block) {
    c->fd = socket(AF_INET, SOCK_STREAM | (block ? 0 : SOCK_NONBLOCK), 0);
    if (c->fd < 0) {
        perror("socket");
        return -1;
    }
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, 4);
    int r = connect(c->fd, (void *)&A, sizeof A);
    if (r < 0 && errno != EINPROGRESS) {
        close(c->fd);
        c->fd = -1;
        return -1;
    }
    if (ctx) { // handshake is blocking
        if (!block) {
            int f = fcntl(c->fd, F_GETFL);
            fcntl(c->fd, F_SETFL, f & ~O_NONBLOCK);
        }
        c->ssl = SSL_new(ctx);
        SSL_set_fd(c->ssl, c->fd);
        SSL_set_tlsext_host_name(c->ssl, "bench.local");
        if (SSL_connect(c->ssl) != 1) {
            SSL_free(c->ssl);
            c->ssl = 0;
            close(c->fd);
            c->fd = -1;
            return -1;
        }
    }
    if (block || ctx) {
        int f = fcntl(c->fd, F_GETFL);
        fcntl(c->fd, F_SETFL, f | O_NONBLOCK);
        c->st = IDLE;
    } else
        c->st = CONNECTING;
    struct epoll_event e = {EPOLLIN | (c->st == CONNECTING ? EPOLLOUT : 0), {.u32 = (u32)(c - C)}};
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
    c->hn = 0;
    c->inbody = 0;
    return 0;
}
static void hang(struct conn *c) {
    if (c->ssl) {
        SSL_free(c->ssl);
        c->ssl = 0;
    }
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->st = DEAD;
}
static void fail(struct conn *c) {
    if (c->sched >= t_meas) {
        errs++;
        if (tf) {
            struct rec r = {c->sched, c->send, now(), 0, (u32)(c - C)};
            fwrite(&r, sizeof r, 1, tf);
        }
    }
    hang(c);
}
static int put(struct conn *c) {
    int i = c->ri;
    c->send = now();
    ssize_t w = c->ssl ? SSL_write(c->ssl, RQ[i], RL[i]) : write(c->fd, RQ[i], RL[i]);
    if (w != RL[i])
        return -1;
    sentn++;
    c->st = BUSY;
    return 0;
}
// start a request; returns 0 if started (or connecting)
static int go(struct conn *c, u64 sched) {
    c->sched = sched;
    c->ri = rqi++ % nrq;
    c->status = 0;
    c->closing = 0;
    if (c->fd < 0) {
        reconn++;
        if (dial(c, 0)) {
            fail(c);
            return -1;
        }
        if (c->st == CONNECTING)
            return 0;
    }
    if (put(c)) { // stale keep-alive: one retry on a new connection
        hang(c);
        reconn++;
        if (dial(c, 0)) {
            fail(c);
            return -1;
        }
        if (c->st == CONNECTING)
            return 0;
        if (put(c)) {
            fail(c);
            return -1;
        }
    }
    return 0;
}
static void fin(struct conn *c) {
    u64 t = now();
    if (c->sched >= t_meas && c->sched < t_end) {
        if (nl < cap) {
            u64 l = t - c->sched, s = t - c->send;
            lat[nl] = l > 4290000000ull ? 4290000000u : l;
            svc[nl] = s > 4290000000ull ? 4290000000u : s;
            nl++;
        }
        st_cnt[c->status < 1000 ? c->status : 999]++;
        if (tf) {
            struct rec r = {c->sched, c->send, t, c->status, (u32)(c - C)};
            fwrite(&r, sizeof r, 1, tf);
        }
    }
    c->st = IDLE;
    c->hn = 0;
    c->inbody = 0;
    if (c->closing || newc)
        hang(c);
}
// returns 1 response complete, 0 more, -1 error
static int feed(struct conn *c, char *p, ssize_t n) {
    while (n > 0) {
        if (!c->inbody) {
            int room = sizeof c->h - 1 - c->hn;
            if (room <= 0)
                return -1;
            int k = n < room ? n : room;
            int was = c->hn;
            memcpy(c->h + was, p, k);
            c->hn += k;
            c->h[c->hn] = 0;
            char *e = memmem(c->h, c->hn, "\r\n\r\n", 4);
            if (!e) {
                p += k;
                n -= k;
                continue;
            }
            int hl = e + 4 - c->h, usedn = hl - was;
            p += usedn;
            n -= usedn;
            *e = 0;
            c->status = atoi(c->h + 9);
            c->left = -1;
            c->chunked = 0;
            for (char *l = strstr(c->h, "\r\n"); l; l = strstr(l, "\r\n")) {
                l += 2;
                if (!strncasecmp(l, "content-length:", 15))
                    c->left = atol(l + 15);
                else if (!strncasecmp(l, "transfer-encoding: chunked", 26))
                    c->chunked = 1;
                else if (!strncasecmp(l, "connection: close", 17))
                    c->closing = 1;
            }
            if (c->status >= 100 && c->status < 200) {
                c->hn = 0;
                continue;
            }
            c->inbody = 1;
            c->cst = 0;
            c->csz = 0;
            if (c->chunked) {
            } else if (c->left <= 0) {
                if (c->left < 0)
                    c->closing = 1;
                return 1;
            }
        } else if (c->chunked) {
            while (n > 0) {
                if (c->cst == 0) {
                    char ch = *p++;
                    n--;
                    if (ch == '\n')
                        c->cst = c->csz ? 2 : 3;
                    else if (ch == '\r' || ch == ';') {
                        if (ch == ';')
                            c->cst = 1;
                    } else {
                        int v = ch <= '9' ? ch - '0' : (ch | 32) - 'a' + 10;
                        c->csz = c->csz * 16 + v;
                    }
                } else if (c->cst == 1) {
                    if (*p++ == '\n')
                        c->cst = c->csz ? 2 : 3;
                    n--;
                } else if (c->cst == 2) {
                    long k = n < c->csz ? n : c->csz;
                    p += k;
                    n -= k;
                    c->csz -= k;
                    if (!c->csz)
                        c->cst = 4;
                } else if (c->cst == 4) {
                    if (*p == '\n') {
                        c->cst = 0;
                        c->csz = 0;
                    }
                    p++;
                    n--;
                } else {
                    if (*p++ == '\n') {
                        return 1;
                    }
                    n--;
                }
            }
            return 0;
        } else {
            long k = n < c->left ? n : c->left;
            c->left -= k;
            p += k;
            n -= k;
            if (!c->left)
                return 1;
        }
    }
    return 0;
}
static int cmp(const void *a, const void *b) {
    u32 x = *(u32 *)a, y = *(u32 *)b;
    return x < y ? -1 : x > y;
}
static double pc(u32 *v, size_t n, double q) {
    if (!n)
        return 0;
    size_t i = q * (n - 1) + 0.5;
    return v[i] / 1000.0;
}
static u64 rs = 88172645463325252ull;
static double rnd(void) {
    rs ^= rs << 13;
    rs ^= rs >> 7;
    rs ^= rs << 17;
    return ((rs >> 11) + 1) / 9007199254740993.0;
}
int main(int ac, char **av) {
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1);
    struct rlimit rl = {1048576, 1048576};
    if (setrlimit(RLIMIT_NOFILE, &rl)) {
        getrlimit(RLIMIT_NOFILE, &rl);
        rl.rlim_cur = rl.rlim_max;
        setrlimit(RLIMIT_NOFILE, &rl);
    }
    double dur = 5, rate = 0, warm = 0.3;
    int poi = 0, np = 1, nk = 0, idle = 0;
    char *path = "/", *tfn = 0, *host = "bench.local";
    char *hp = strdup(av[1]);
    char *col = strchr(hp, ':');
    *col = 0;
    A.sin_family = AF_INET;
    A.sin_addr.s_addr = inet_addr(hp);
    A.sin_port = htons(atoi(col + 1));
    if ((ntohl(A.sin_addr.s_addr) >> 24) != 127) {
        fprintf(stderr, "loopback only\n");
        return 2;
    }
    int o;
    optind = 2;
    while ((o = getopt(ac, av, "c:d:r:Pp:N:K:nBsT:iC:w:S:H:")) > 0)
        switch (o) {
        case 'c':
            nc = atoi(optarg);
            break;
        case 'd':
            dur = atof(optarg);
            break;
        case 'r':
            rate = atof(optarg);
            break;
        case 'P':
            poi = 1;
            break;
        case 'p':
            path = optarg;
            break;
        case 'N':
            np = atoi(optarg);
            break;
        case 'K':
            nk = atoi(optarg);
            break;
        case 'n':
            newc = 1;
            break;
        case 'B':
            fields = BROWSER;
            break;
        case 's':
            ctx = SSL_CTX_new(TLS_client_method());
            break;
        case 'T':
            tfn = optarg;
            break;
        case 'i':
            idle = 1;
            break;
        case 'w':
            warm = atof(optarg);
            break;
        case 'H':
            host = optarg;
            break;
        case 'S':
            rs ^= strtoull(optarg, 0, 10) * 0x9E3779B97F4A7C15ull;
            break;
        case 'C': {
            cpu_set_t s;
            CPU_ZERO(&s);
            CPU_SET(atoi(optarg), &s);
            sched_setaffinity(0, sizeof s, &s);
        } break;
        default:
            return 2;
        }
    nrq = np > nk ? np : nk;
    if (nrq < 1)
        nrq = 1;
    RQ = malloc(nrq * sizeof *RQ);
    RL = malloc(nrq * sizeof *RL);
    for (int i = 0; i < nrq; i++) {
        char pb[512], kb[64] = "";
        snprintf(pb, sizeof pb, path, np > 1 ? (int)(((u64)i * 7919) % np) : 0);
        if (nk)
            snprintf(kb, sizeof kb, "X-Key: k%d\r\n", i % nk);
        RL[i] = asprintf(&RQ[i], "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", pb, host,
                         fields, kb, newc ? "Connection: close\r\n" : "");
    }
    if (tfn) {
        tf = fopen(tfn, "w");
        setvbuf(tf, 0, _IOFBF, 1 << 20);
    }
    cap = rate > 0 ? (size_t)(rate * dur * 1.3) + 10000 : (size_t)(dur * 400000) + 10000;
    lat = malloc(cap * 4);
    svc = malloc(cap * 4);
    ep = epoll_create1(0);
    C = calloc(nc, sizeof *C);
    icap = nc + 1;
    iq = malloc(icap * sizeof *iq);
    pcap = 4u << 20;
    pq = malloc(pcap * 8);
    for (int i = 0; i < nc; i++) {
        C[i].fd = -1;
        C[i].st = DEAD;
        if (!newc && dial(&C[i], 1)) {
            fprintf(stderr, "connect %d: %s\n", i, strerror(errno));
            return 1;
        }
        if (idle) { // one blocking request each, then leave it idle
            go(&C[i], now());
            C[i].sched = ~0ull;
            for (int k = 0; k < 20000; k++) {
                ssize_t r = C[i].ssl ? SSL_read(C[i].ssl, rb, sizeof rb) : read(C[i].fd, rb, sizeof rb);
                if (r <= 0) {
                    usleep(100);
                    continue;
                }
                if (feed(&C[i], rb, r) == 1)
                    break;
            }
        } else
            ipush(i);
    }
    if (idle) {
        printf("ready\n");
        fflush(stdout);
        usleep(dur * 1e6);
        return 0;
    }
    u64 t0 = now();
    t_meas = t0 + (u64)(warm * 1e9);
    t_end = t_meas + (u64)(dur * 1e9);
    u64 hard = t_end + 3000000000ull;
    double gap = rate > 0 ? 1e9 / rate : 0;
    double nx = t0;
    struct epoll_event ev[512];
    struct rusage r0;
    getrusage(RUSAGE_SELF, &r0);
    if (rate == 0)
        for (int i; (i = ipop()) >= 0;)
            go(&C[i], now());
    u64 inflight = 0;
    for (;;) {
        u64 t = now();
        if (t >= hard)
            break;
        if (rate > 0) {
            while (nx <= t && nx < t_end) {
                u64 s = (u64)nx;
                int i = ipop();
                if (i >= 0) {
                    if (go(&C[i], s) < 0)
                        ipush(i);
                } else {
                    pq[pt % pcap] = s;
                    pt++;
                }
                nx += poi ? -log(rnd()) * gap : gap;
            }
            if (t >= t_end && ph == pt) {
                int busy = 0;
                int q = ih;
                int idlen = (it - ih + icap) % icap;
                (void)q;
                busy = nc - idlen;
                if (!busy)
                    break;
            }
        } else if (t >= t_end)
            break;
        struct timespec ts;
        long long w = rate > 0 ? (long long)(nx - now()) : 10000000;
        if (rate > 0 && nx >= t_end)
            w = 1000000;
        if (w < 0)
            w = 0;
        ts.tv_sec = w / 1000000000;
        ts.tv_nsec = w % 1000000000;
        int n = epoll_pwait2(ep, ev, 512, &ts, 0);
        for (int k = 0; k < n; k++) {
            struct conn *c = &C[ev[k].data.u32];
            int done = 0;
            if (c->fd < 0)
                continue;
            if (c->st == CONNECTING) {
                int er = 0;
                socklen_t l = 4;
                getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &er, &l);
                if (er) {
                    fail(c);
                    done = 1;
                } else if (ev[k].events & EPOLLOUT) {
                    struct epoll_event e = {EPOLLIN, {.u32 = (u32)(c - C)}};
                    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
                    if (put(c)) {
                        fail(c);
                        done = 1;
                    }
                }
            } else
                for (;;) {
                    ssize_t r = c->ssl ? SSL_read(c->ssl, rb, sizeof rb) : read(c->fd, rb, sizeof rb);
                    if (r <= 0) {
                        if (c->ssl) {
                            int e = SSL_get_error(c->ssl, r);
                            if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
                                break;
                        } else if (r < 0 && errno == EAGAIN)
                            break;
                        if (c->st == BUSY) {
                            if (c->hn == 0) { /* closed before any byte */
                            }
                            fail(c);
                            done = 1;
                        } else
                            hang(c);
                        break;
                    }
                    if (now() >= t_meas)
                        bytes += r;
                    if (c->st != BUSY) {
                        hang(c);
                        break;
                    }
                    int x = feed(c, rb, r);
                    if (x < 0) {
                        fail(c);
                        done = 1;
                        break;
                    }
                    if (x == 1) {
                        fin(c);
                        done = 1;
                        break;
                    }
                    if (!c->ssl && r < (ssize_t)sizeof rb)
                        break;
                }
            if (done) {
                int i = c - C;
                if (rate == 0) {
                    if (now() < t_end)
                        while (go(c, now()) < 0 && now() < t_end)
                            usleep(1000);
                } else if (ph != pt) {
                    u64 s = pq[ph % pcap];
                    ph++;
                    if (go(c, s) < 0)
                        ipush(i);
                } else
                    ipush(i);
            }
        }
    }
    (void)inflight;
    struct rusage r1;
    getrusage(RUSAGE_SELF, &r1);
    double cpu =
        (r1.ru_utime.tv_sec - r0.ru_utime.tv_sec) + (r1.ru_stime.tv_sec - r0.ru_stime.tv_sec) +
        (r1.ru_utime.tv_usec - r0.ru_utime.tv_usec + r1.ru_stime.tv_usec - r0.ru_stime.tv_usec) / 1e6;
    u64 ok = 0, un = 0;
    for (int i = 200; i < 400; i++)
        ok += st_cnt[i];
    for (int i = 0; i < nc; i++)
        if (C[i].st == BUSY || C[i].st == CONNECTING)
            un++;
    un += pt - ph;
    if (rate == 0)
        un = 0;
    double sum = 0;
    for (size_t i = 0; i < nl; i++)
        sum += lat[i];
    qsort(lat, nl, 4, cmp);
    qsort(svc, nl, 4, cmp);
    if (tf)
        fclose(tf);
    printf("{\"n\":%zu,\"ok\":%llu,\"s429\":%llu,\"s503\":%llu,\"s404\":%llu,\"errors\":%llu,\"unanswered\":%"
           "llu,\"reconnects\":%llu,\"dur\":%.3f,\"rps\":%.1f,\"mbps\":%.1f,\"total_sent\":%llu,\"gen_cpu\":%"
           ".3f,\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f,\"svc_p50\":%"
           ".1f,\"svc_p99\":%.1f,\"svc_p999\":%.1f}\n",
           nl, (unsigned long long)ok, (unsigned long long)st_cnt[429], (unsigned long long)st_cnt[503],
           (unsigned long long)st_cnt[404], (unsigned long long)errs, (unsigned long long)un,
           (unsigned long long)reconn, dur, nl / dur, bytes / dur / 1e6, (unsigned long long)sentn, cpu,
           nl ? sum / nl / 1000 : 0, pc(lat, nl, .5), pc(lat, nl, .9), pc(lat, nl, .99), pc(lat, nl, .999),
           nl ? lat[nl - 1] / 1000.0 : 0, pc(svc, nl, .5), pc(svc, nl, .99), pc(svc, nl, .999));
    return 0;
}
