"""RSS idle; RSS with N idle keep-alive connections, each after one request (KiB per connection). extra: N
(default 10000)"""

from common import *

a = args(__doc__, rounds=3)
u = Up()
N = int(a.extra[0]) if a.extra else 10000


def f(p, r, tls=False):
    out = []
    for tls in (False, True):
        if tls and 'tls' not in a.ad[p].caps:
            continue
        if tls and r > 0:
            continue
        n = N if not tls else N // 5
        i = start(a.ad[p], {'upstream': u.port, 'tls': tls})
        try:
            time.sleep(0.5)
            r0 = i.rss()
            p0 = i.pss()
            g = lg_bg(i.port, '-c', n, '-d', 4, '-i', *(['-s'] if tls else []))
            l = g.stdout.readline()
            if 'ready' not in l:
                g.kill()
                raise RuntimeError('idle conns not reached')
            time.sleep(1.5)
            r1 = i.rss()
            p1 = i.pss()
            c0 = i.cpu()
            time.sleep(1)
            idle_cpu = i.cpu() - c0
            g.kill()
            g.wait()
            time.sleep(1.5)
            r2 = i.rss()
            out.append(
                {
                    'tls': tls,
                    'idle_mib': r0 / 1024,
                    'pss_mib': p0 / 1024,
                    'loaded_mib': r1 / 1024,
                    'kib_conn': (r1 - r0) / n,
                    'after_mib': r2 / 1024,
                    'idle_cpu_pct': idle_cpu * 100,
                }
            )
        finally:
            i.stop()
    return out


raw = rounds(a.peers, a.rounds, f)
u.stop()
T = []
for tls in (False, True):
    T.append(
        report(
            's4',
            a,
            [x for x in raw if x.get('tls') == tls],
            ['idle_mib', 'pss_mib', 'loaded_mib', 'kib_conn', 'after_mib', 'idle_cpu_pct'],
            f'{N if not tls else N // 5} idle connections, tls={tls}',
            'kib_conn',
        )
    )
save('s4_memory', raw, T, {}, a.out)
