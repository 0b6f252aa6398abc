"""Proxy CPU-seconds per 100,000 requests at a FIXED offered rate (Poisson arrivals, 64 connections). extra
args: rates (default 5000 10000); `rejected`: a limit rejects nearly all requests; `browser`: requests have the
path and the fields of a browser; `connections`: each request has a connection of its own; `auth`: a service (the
upstream) is asked about each request, and answers without a body; `auth-body`: with one"""

from common import *

a = args(__doc__, DEFAULT_PEERS)
u = Up()
allraw = []
tabs = []
spec, load, kind = variant(a)
for rate in [int(x) for x in a.extra if x.isdigit()] or [5000, 10000]:
    raw = rounds(
        a.peers,
        a.rounds,
        lambda p, r: {
            **measure(a, p, spec, ['-c', 64, '-d', a.secs, '-r', rate, '-P', '-S', r + 1, *load], u),
            'rate': rate,
        },
    )
    tabs.append(
        report(
            's2',
            a,
            raw,
            ['cpu_100k', 'user_share', 'csw_req', 'busy', 'p50', 'p99', 'rss'],
            f'CPU s per 100k requests{kind} at {rate}/s offered',
        )
    )
    allraw += raw
u.stop()
save('s2_cpu', allraw, tabs, {}, a.out)
