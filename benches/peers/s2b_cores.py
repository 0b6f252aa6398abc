"""As s2 but proxies use 2 workers/threads and are not pinned (they share both cores with generator and
upstream): what sharing across threads costs. extra: rates"""

from common import *

a = args(__doc__, DEFAULT_PEERS)
u = Up()
T = []
A = []
for rate in [int(x) for x in a.extra] or [8000]:
    raw = rounds(
        a.peers,
        a.rounds,
        lambda p, r: {
            **measure(
                a, p, {'cores': 2}, ['-c', 64, '-d', a.secs, '-r', rate, '-P', '-S', r + 1], u, core=None
            ),
            'rate': rate,
        },
    )
    A += raw
    T.append(
        report(
            's2b',
            a,
            raw,
            ['cpu_100k', 'user_share', 'csw_req', 'p50', 'p99'],
            f'2 workers, unpinned, {rate}/s',
        )
    )
u.stop()
save('s2b_cores', A, T, {}, a.out)
