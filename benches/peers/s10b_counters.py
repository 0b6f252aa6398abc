"""Do limiter counters survive a reload? Exhaust a bucket of 200 (refill 1/s; haproxy: 200 per sliding
second), reload, wait until the new config answers, offer 200 more: admitted ~0 = kept, ~200 = reset. Old and
new connections, counted at the upstream."""

from common import *

a = args(__doc__, 'nginx,haproxy26,flowgate', rounds=3)


def f(p, r):
    u = Up(ts=True)
    L = {'rate': 200 if p.startswith('haproxy') else 1, 'burst': 200, 'key': 'header'}
    i = start(a.ad[p], {'upstream': u.port, 'limit': L, 'tag': 'old'})
    try:
        time.sleep(1.2 if p.startswith('haproxy') else 0.1)
        n0 = len(u.times())
        x = lg(i.port, '-c', 8, '-d', 0.4, '-w', 0, '-r', 1000, '-K', 1)
        n1 = len(u.times())
        t0 = time.time()
        a.ad[p].reload(i, Spec({**i.spec, 'tag': 'new'}))
        while time.time() - t0 < 3:
            s = socket.create_connection(('127.0.0.1', i.port))
            s.sendall(b'GET / HTTP/1.1\r\nHost: bench.local\r\nX-Key: other\r\nConnection: close\r\n\r\n')
            d = s.recv(4096)
            s.close()
            if b'new' in d:
                break
            time.sleep(0.01)
        t = (time.time() - t0) * 1e3
        n2 = len(u.times())
        x = lg(i.port, '-c', 8, '-d', 0.4, '-w', 0, '-r', 1000, '-K', 1)
        n3 = len(u.times())
        return {'admitted_before': n1 - n0, 'reload_ms': t, 'admitted_after': n3 - n2}
    finally:
        i.stop()
        u.stop()


raw = rounds(a.peers, a.rounds, f)
save(
    's10b_counters',
    raw,
    [
        report(
            's10b',
            a,
            raw,
            ['admitted_before', 'reload_ms', 'admitted_after'],
            'limiter counters over a reload',
            'admitted_after',
        )
    ],
    {},
    a.out,
)
