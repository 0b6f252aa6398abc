"""Closed loop, small body, 64 keep-alive connections, proxy on core 0, generator + upstream on core 1.
throughput (1 core) and proxy CPU per 100k requests at saturation.  extra args: conns"""

from common import *

a = args(__doc__, 'direct,' + DEFAULT_PEERS)
u = Up()
c = int(a.extra[0]) if a.extra else 64
raw = rounds(a.peers, a.rounds, lambda p, r: measure(a, p, {}, ['-c', c, '-d', a.secs], u))
u.stop()
rows = report(
    's1',
    a,
    raw,
    ['rps', 'cpu_100k', 'user_share', 'busy', 'csw_req', 'p50', 'p99'],
    f'throughput, 1 core, {c} conns',
    'rps',
)
rows2 = report(
    's1',
    a,
    [x for x in raw if x['peer'] != 'direct'],
    ['cpu_100k'],
    'CPU s per 100k at saturation',
    'cpu_100k',
)
save('s1_throughput', raw, [rows, rows2], {'conns': c}, a.out)
