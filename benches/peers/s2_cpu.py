"""Proxy CPU-seconds per 100,000 requests at a FIXED offered rate (Poisson arrivals, 64 connections). extra
args: rates (default 5000 10000)"""

from common import *

a = args(__doc__, DEFAULT_PEERS)
u = Up()
allraw = []
tabs = []
for rate in [int(x) for x in a.extra] or [5000, 10000]:
    raw = rounds(
        a.peers,
        a.rounds,
        lambda p, r: {
            **measure(a, p, {}, ['-c', 64, '-d', a.secs, '-r', rate, '-P', '-S', r + 1], u),
            'rate': rate,
        },
    )
    tabs.append(
        report(
            's2',
            a,
            raw,
            ['cpu_100k', 'user_share', 'csw_req', 'busy', 'p50', 'p99', 'rss'],
            f'CPU s per 100k requests at {rate}/s offered',
        )
    )
    allraw += raw
u.stop()
save('s2_cpu', allraw, tabs, {}, a.out)
