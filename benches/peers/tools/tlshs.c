// TLS handshakes: THREADS blocking clients, each: connect, handshake, GET (Connection: close), read to the
// end, close.
//  tlshs HOST:PORT -c threads -d secs [-r resume] [-2 TLS1.2] [-C core]
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
static struct sockaddr_in A;
static int resume, t12;
static double endt;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
struct R {
    long n, res, err;
};
static void *th(void *p) {
    struct R *r = p;
    SSL_CTX *x = SSL_CTX_new(TLS_client_method());
    if (t12)
        SSL_CTX_set_max_proto_version(x, TLS1_2_VERSION);
    SSL_CTX_set1_groups_list(x, "X25519:P-256");
    SSL_SESSION *s = 0;
    char b[8192];
    while (now() < endt) {
        int f = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        setsockopt(f, IPPROTO_TCP, TCP_NODELAY, &one, 4);
        if (connect(f, (void *)&A, sizeof A)) {
            r->err++;
            close(f);
            usleep(1000);
            continue;
        }
        SSL *c = SSL_new(x);
        SSL_set_fd(c, f);
        SSL_set_tlsext_host_name(c, "bench.local");
        if (resume && s)
            SSL_set_session(c, s);
        if (SSL_connect(c) != 1) {
            r->err++;
        } else {
            static const char q[] = "GET / HTTP/1.1\r\nHost: bench.local\r\nConnection: close\r\n\r\n";
            SSL_write(c, q, sizeof q - 1);
            int k, tot = 0;
            while ((k = SSL_read(c, b, sizeof b)) > 0)
                tot += k;
            if (tot < 20)
                r->err++;
            else {
                r->n++;
                if (SSL_session_reused(c))
                    r->res++;
            }
            if (resume) {
                SSL_SESSION *ns = SSL_get1_session(c);
                if (ns && SSL_SESSION_is_resumable(ns)) {
                    if (s)
                        SSL_SESSION_free(s);
                    s = ns;
                } else if (ns)
                    SSL_SESSION_free(ns);
            }
            SSL_set_shutdown(c, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        }
        SSL_free(c);
        close(f);
    }
    return 0;
}
int main(int ac, char **av) {
    signal(SIGPIPE, SIG_IGN);
    int nt = 4;
    double d = 4;
    char *h = strdup(av[1]), *k = strchr(h, ':');
    *k = 0;
    A.sin_family = AF_INET;
    A.sin_addr.s_addr = inet_addr(h);
    A.sin_port = htons(atoi(k + 1));
    if ((ntohl(A.sin_addr.s_addr) >> 24) != 127)
        return 2;
    int o;
    optind = 2;
    while ((o = getopt(ac, av, "c:d:r2C:")) > 0)
        switch (o) {
        case 'c':
            nt = atoi(optarg);
            break;
        case 'd':
            d = atof(optarg);
            break;
        case 'r':
            resume = 1;
            break;
        case '2':
            t12 = 1;
            break;
        case 'C': {
            cpu_set_t s;
            CPU_ZERO(&s);
            CPU_SET(atoi(optarg), &s);
            sched_setaffinity(0, sizeof s, &s);
        } break;
        }
    // -r takes no argument value; accept "-r1"
    double t0 = now();
    endt = t0 + d;
    pthread_t T[64];
    struct R R[64] = {0};
    for (int i = 0; i < nt; i++)
        pthread_create(&T[i], 0, th, &R[i]);
    long n = 0, rs = 0, e = 0;
    for (int i = 0; i < nt; i++) {
        pthread_join(T[i], 0);
        n += R[i].n;
        rs += R[i].res;
        e += R[i].err;
    }
    d = now() - t0;
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"n\":%ld,\"resumed\":%ld,\"errors\":%ld,\"dur\":%.3f,\"hps\":%.1f,\"gen_cpu\":%.3f}\n", n, rs,
           e, d, n / d,
           u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    return 0;
}
