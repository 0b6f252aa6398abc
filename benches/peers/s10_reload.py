"""Config reload under load (keep-alive 2000/s Poisson + 200/s on new connections): failed requests, worst latency
in the 2 s after the reload against the second before it, time until the new config answers on new and on old
connections.  after_debounce_ms leaves out the time to write the file and the peer's own debounce.
extra: route counts (default 1 1000 10000)"""

from common import *
import threading

a = args(__doc__, 'nginx,haproxy26,flowgate', rounds=3)
a.peers = [p for p in a.peers if 'reload' in a.ad[p].caps]
raw = []
T = []


def get(s, keep):
    s.sendall(
        b'GET /r/0/x HTTP/1.1\r\nHost: bench.local\r\n'
        + (b'' if keep else b'Connection: close\r\n')
        + b'\r\n'
    )
    d = b''
    while b'\r\n\r\n' not in d or b'World' not in d:
        x = s.recv(4096)
        if not x:
            break
        d += x
    return d


for n in [int(x) for x in a.extra] or [1, 1000, 10000]:

    def f(p, r):
        u, i = Up(), None
        try:
            t_start = time.time()
            i = start(a.ad[p], {'upstream': u.port, 'routes': n, 'tag': 'old'}, wait=90)
            t_start = time.time() - t_start
            os.sched_setaffinity(0, {LOAD_CORE})
            f1, f2 = i.dir + '/r1', i.dir + '/r2'
            rss0 = i.rss()
            g1 = lg_bg(
                i.port, '-c', 32, '-d', 6, '-w', 0, '-r', 2000, '-P', '-p', '/r/%d/x', '-N', n, '-T', f1
            )
            g2 = lg_bg(
                i.port, '-c', 32, '-d', 6, '-w', 0, '-r', 200, '-n', '-p', '/r/%d/x', '-N', n, '-T', f2
            )
            old = socket.create_connection(('127.0.0.1', i.port))
            old.settimeout(5)
            get(old, True)
            time.sleep(2)
            inforce = {}
            stop = [0]

            def probe():
                while not stop[0] and 'new' not in inforce:
                    try:
                        s = socket.create_connection(('127.0.0.1', i.port), 2)
                        s.settimeout(5)
                        if re.search(rb'(?i)x-cfg: new', get(s, False)):
                            inforce['new'] = time.monotonic_ns()
                        s.close()
                    except OSError:
                        inforce['err'] = inforce.get('err', 0) + 1
                    time.sleep(0.003)

            th = threading.Thread(target=probe)
            t0 = time.monotonic_ns()
            th.start()
            sp = Spec({**i.spec, 'tag': 'new'})
            peak = [0]
            a.ad[p].reload(i, sp)
            t_call = (time.monotonic_ns() - t0) / 1e6
            e = time.monotonic() + 1.5
            while time.monotonic() < e:
                peak[0] = max(peak[0], i.rss())
                time.sleep(0.02)
            try:
                d = get(old, True)
                tag = re.search(rb'(?i)x-cfg: (\w+)', d)
                oldconn = tag.group(1).decode() if tag else 'closed'
            except OSError:
                oldconn = 'reset'
            o1 = json.loads(g1.communicate()[0])
            o2 = json.loads(g2.communicate()[0])
            stop[0] = 1
            th.join(6)

            def mx(rs, lo, hi):
                v = [(x[2] - x[0]) / 1e6 for x in rs if lo <= x[0] < hi and x[3]]
                return max(v) if v else 0

            R1, R2 = records(f1), records(f2)
            inforce_ms = (inforce['new'] - t0) / 1e6 if 'new' in inforce else None
            return {
                'routes': n,
                'start_s': t_start,
                'call_ms': t_call,
                'inforce_ms': inforce_ms,
                'after_debounce_ms': inforce_ms and inforce_ms - t_call - a.ad[p].debounce_ms,
                'failed_ka': o1['errors'] + o1['unanswered'],
                'failed_new': o2['errors'] + o2['unanswered'],
                'probe_err': inforce.get('err', 0),
                'bad_status': o1['n'] - o1['ok'] + o2['n'] - o2['ok'],
                'reconnects': o1['reconnects'],
                'max_before_ms': mx(R1 + R2, t0 - 1_000_000_000, t0),
                'max_after_ms': mx(R1 + R2, t0 - 50_000_000, t0 + 2_000_000_000),
                'old_conn_after_1.5s': oldconn,
                'rss_before_mib': rss0 / 1024,
                'rss_peak_mib': peak[0] / 1024,
                'n': o1['n'] + o2['n'],
            }
        finally:
            os.sched_setaffinity(0, {PROXY_CORE, LOAD_CORE})
            if i:
                i.stop()
            u.stop()

    x = rounds(a.peers, a.rounds, f)
    raw += x
    for y in x:
        print({k: (round(v, 2) if isinstance(v, float) else v) for k, v in y.items()})
    T.append(
        report(
            's10',
            a,
            [y for y in x if 'fail' not in y],
            [
                'inforce_ms',
                'after_debounce_ms',
                'max_before_ms',
                'max_after_ms',
                'failed_ka',
                'failed_new',
                'probe_err',
                'bad_status',
                'reconnects',
                'call_ms',
                'start_s',
                'rss_before_mib',
                'rss_peak_mib',
            ],
            f'reload with {n} routes',
            'max_after_ms',
        )
    )
save('s10_reload', raw, T, {}, a.out)
