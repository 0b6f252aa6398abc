"""Added latency at a fixed, non-saturating rate (Poisson, 32 connections) over the direct-to-upstream control
of the same round. extra: rate (2000)"""

from common import *

a = args(__doc__, 'direct,' + DEFAULT_PEERS, rounds=7)
u = Up()
rate = int(a.extra[0]) if a.extra else 2000
if 'direct' not in a.peers:
    a.peers.insert(0, 'direct')
raw = rounds(
    a.peers,
    a.rounds,
    lambda p, r: measure(a, p, {}, ['-c', 32, '-d', a.secs, '-r', rate, '-P', '-S', r + 1], u),
)
u.stop()
D = {x['round']: x for x in raw if x['peer'] == 'direct' and 'fail' not in x}
for x in raw:
    if 'fail' in x or x['round'] not in D:
        continue
    for k in ('p50', 'p99', 'p999'):
        x['add_' + k] = x[k] - D[x['round']][k]
rows = report(
    's3',
    a,
    raw,
    ['p50', 'p99', 'p999', 'add_p50', 'add_p99', 'add_p999'],
    f'latency us at {rate}/s (add_* = over direct, same round)',
    'p50',
)
save('s3_latency', raw, rows, {'rate': rate}, a.out)
