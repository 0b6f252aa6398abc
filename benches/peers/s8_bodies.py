"""64 KiB and 1 MiB response bodies, plaintext, 8 connections, closed loop: MB/s and proxy CPU-seconds per GB.
extra: sizes"""

from common import *

a = args(__doc__, 'direct,' + DEFAULT_PEERS)
u = Up()
T = []
allraw = []
for sz in [int(x) for x in a.extra] or [65536, 1048576]:
    raw = rounds(
        a.peers,
        a.rounds,
        lambda p, r: {**measure(a, p, {}, ['-c', 8, '-d', a.secs, '-p', f'/s/{sz}'], u), 'size': sz},
    )
    allraw += raw
    T.append(
        report('s8', a, raw, ['mbps', 'rps', 'cpu_per_gb', 'busy', 'csw_req'], f'bodies of {sz}', 'mbps')
    )
    T.append(
        report(
            's8',
            a,
            [x for x in raw if x['peer'] != 'direct'],
            ['cpu_per_gb'],
            f'bodies of {sz}: CPU s per GB',
            'cpu_per_gb',
        )
    )
u.stop()
save('s8_bodies', allraw, T, {}, a.out)
