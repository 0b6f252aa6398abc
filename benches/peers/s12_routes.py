"""Routing cost: proxy CPU per 100k requests at 1000/s with N prefix routes, requests spread over them all.
extra: route counts (default 1 1000 10000)"""

from common import *

a = args(__doc__, DEFAULT_PEERS, rounds=3, secs=1.5)
u = Up()
T = []
A = []
a.peers = [p for p in a.peers if 'routes' in a.ad[p].caps]
for n in [int(x) for x in a.extra] or [1, 1000, 10000]:
    raw = rounds(
        a.peers,
        a.rounds,
        lambda p, r: {
            **measure(
                a, p, {'routes': n}, ['-c', 16, '-d', a.secs, '-r', 1000, '-P', '-p', '/r/%d/x', '-N', n], u
            ),
            'routes': n,
        },
    )
    A += raw
    T.append(
        report(
            's12',
            a,
            raw,
            ['cpu_100k', 'busy', 'rss', 'p50', 'errors', 'unanswered'],
            f'{n} routes',
            'cpu_100k',
        )
    )
u.stop()
save('s12_routes', A, T, {}, a.out)
