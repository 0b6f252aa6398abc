"""Config reload under load (keep-alive 2000/s Poisson + 200/s on new connections): failed requests, worst latency
in the 2 s after the reload against the second before it, time until the new config answers on new and on old
connections.  after_debounce_ms leaves out the time to write the file and the peer's own debounce.
late_edit: requests of the second that begins with the edit that took over 10 ms; late_else: the same, a second, in
the second before it and in the two after it; waited_edit_ms and waited_else_ms: how long the peer's busiest thread, its
worker, was runnable and had no core, in the second of the edit and in the one before it.
extra: route counts (default 1 1000 10000)"""

from common import *
import threading

a = args(__doc__, 'nginx,haproxy26,flowgate', rounds=3)
a.peers = [p for p in a.peers if 'reload' in a.ad[p].caps]
raw = []
T = []
LATE_MS = 10


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


def ran(pids):
    """ns on a core so far, by where the kernel tells it of each thread"""
    tasks = [f'/proc/{p}/task/{t}/schedstat' for p in pids for t in os.listdir(f'/proc/{p}/task')]
    return {task: schedstat(task)[0] for task in tasks}


def schedstat(task):
    """ns on a core, ns waiting for one; none if the thread has gone"""
    try:
        with open(task) as f:
            return [int(x) for x in f.read().split()[:2]]
    except OSError:
        return [0, None]


def between(first, last):
    return None if first is None or last is None else (last - first) / 1e6


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
            before = ran(i.pids())
            g1 = lg_bg(
                i.port, '-c', 32, '-d', 6, '-w', 0, '-r', 2000, '-P', '-p', '/r/%d/x', '-N', n, '-T', f1
            )
            g2 = lg_bg(
                i.port, '-c', 32, '-d', 6, '-w', 0, '-r', 200, '-n', '-p', '/r/%d/x', '-N', n, '-T', f2
            )
            old = socket.create_connection(('127.0.0.1', i.port))
            old.settimeout(5)
            get(old, True)
            time.sleep(1)
            # The worker: whatever it began with, it is what runs while requests come.
            task = max((ns - before.get(task, 0), task) for task, ns in ran(i.pids()).items())[1]
            waited = [schedstat(task)[1]]
            time.sleep(1)
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
            waited.append(schedstat(task)[1])
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
                if len(waited) == 2 and time.monotonic_ns() - t0 >= 1_000_000_000:
                    waited.append(schedstat(task)[1])
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

            def late(second):
                lo = t0 + second * 1_000_000_000
                rs = [x for x in R1 + R2 if lo <= x[0] < lo + 1_000_000_000 and x[3]]
                return sum(x[2] - x[0] > LATE_MS * 1_000_000 for x in rs)

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
                'late_edit': late(0),
                'late_else': statistics.mean(map(late, (-1, 1, 2))),
                'waited_edit_ms': between(*waited[1:]),
                'waited_else_ms': between(*waited[:2]),
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
                'late_edit',
                'late_else',
                'waited_edit_ms',
                'waited_else_ms',
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
