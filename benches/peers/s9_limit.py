"""Rate limiting.  extra: any of overhead, accuracy, pace
overhead: proxy CPU per 100k with the limiter on but never reached (1000 keys, limit far above), against the
          same peer without, interleaved
accuracy: one key, limit L=1000/s, offered 10x evenly for SECS*5 s; admitted (arrivals at the upstream) vs L*t
          (+burst), worst sliding 1 s window, refusals/s, CPU per refusal
pace:     queueing limiter at 100/s and 1000/s, offered 2x for a while; spacing of arrivals at the upstream, once more
          over the runs in which the host kept less than CALM percent of the CPU time"""

from common import *

a = args(__doc__, 'nginx,haproxy26,flowgate')
what = a.extra or ['overhead', 'accuracy', 'pace']
raw = []
T = []
CALM = 3  # percent of the machine's CPU time


def stolen():
    """(ticks that the host kept from this machine's CPUs, ticks in all) since the start"""
    x = [int(v) for v in open('/proc/stat').readline().split()[1:9]]
    return x[7], sum(x)


if 'overhead' in what:
    u = Up()
    ps = [p for p in a.peers if 'limit' in a.ad[p].caps]

    def f(p, r):
        g = ['-c', 64, '-d', a.secs, '-r', 5000, '-P', '-K', 1000, '-S', r + 1]
        specs = [
            {},
            {'limit': {'rate': 100000, 'burst': 0 if p.startswith('haproxy') else 100000, 'key': 'header'}},
        ]
        xs = [measure(a, p, s, g, u) for s in (specs if r % 2 == 0 else specs[::-1])]
        xs = xs if r % 2 == 0 else xs[::-1]
        return {
            'mode': 'overhead',
            'plain_100k': xs[0]['cpu_100k'],
            'limited_100k': xs[1]['cpu_100k'],
            'limited/plain': xs[1]['cpu_100k'] / xs[0]['cpu_100k'],
            'us_per_req': (xs[1]['cpu_100k'] - xs[0]['cpu_100k']) * 10,
            'refused': xs[1]['s429'] + xs[1]['s503'],
        }

    x = rounds(ps, a.rounds, f)
    u.stop()
    raw += x
    T.append(
        report(
            's9',
            a,
            x,
            ['plain_100k', 'limited_100k', 'limited/plain', 'us_per_req', 'refused'],
            'limiter under the limit (1000 keys, 5000/s)',
            'limited_100k',
        )
    )
if 'accuracy' in what:
    L, D = 1000, max(5, a.secs * 5)
    ps = [p for p in a.peers if 'limit' in a.ad[p].caps]
    for burst in (0, 100):

        def f(p, r):
            if burst and p.startswith('haproxy'):
                return None
            u = Up(ts=True)
            i = start(a.ad[p], {'upstream': u.port, 'limit': {'rate': L, 'burst': burst, 'key': 'header'}})
            try:
                time.sleep(1.5)
                n0 = len(u.times())
                c0 = i.cpu()
                g = lg(i.port, '-c', 64, '-d', D, '-w', 0, '-r', 10 * L, '-K', 1)
                c = i.cpu() - c0
                ts = u.times()[n0:]
                t0 = ts[0] if ts else 0
                first = sum(1 for t in ts if t - t0 < 1e9)
                rest = [t for t in ts if t - t0 >= 1e9]
                return {
                    'mode': 'accuracy',
                    'burst': burst,
                    'admitted': len(ts),
                    'admitted/allowed': len(ts) / (L * D + burst),
                    'first_1s': first,
                    'worst_1s': worst(ts),
                    'worst_100ms': worst(ts, 1e8),
                    'steady_rate': len(rest) / max(0.1, D - 1),
                    'refused_s': (g['s429'] + g['s503']) / D,
                    'cpu_100k': c / g['n'] * 1e5,
                    'errors': g['errors'],
                    'p99': g['p99'],
                }
            finally:
                i.stop()
                u.stop()

        x = rounds(ps, min(a.rounds, 5), f)
        raw += x
        T.append(
            report(
                's9',
                a,
                x,
                [
                    'admitted',
                    'admitted/allowed',
                    'first_1s',
                    'worst_1s',
                    'worst_100ms',
                    'steady_rate',
                    'refused_s',
                    'cpu_100k',
                    'errors',
                ],
                f'limit {L}/s, burst {burst}, offered {10 * L}/s for {D} s',
                'cpu_100k',
            )
        )
if 'pace' in what:
    for rate in (100, 1000):

        def f(p, r):
            u = Up(ts=True)
            i = start(a.ad[p], {'upstream': u.port, 'pace': {'rate': rate, 'queue': 20000}})
            try:
                time.sleep(0.5)
                n0 = len(u.times())
                before = stolen()
                g = lg(i.port, '-c', 2500, '-d', 2, '-w', 0, '-r', rate * 2, timeout=60)
                host = [y - x for x, y in zip(before, stolen())]
                ts = u.times()[n0:]
                d = [(y - x) / 1e6 for x, y in zip(ts, ts[1:])]
                want = 1000 / rate
                d = d[5:]
                return {
                    'mode': 'pace',
                    'rate': rate,
                    'n': len(d),
                    'got_rate': len(d) / max(1e-9, sum(d) / 1e3),
                    'p50_ms': pct(d, 0.5),
                    'p1_ms': pct(d, 0.01),
                    'p99_ms': pct(d, 0.99),
                    'max_ms': max(d),
                    'std_ms': statistics.pstdev(d),
                    'std/want': statistics.pstdev(d) / want,
                    'back2back_pct': 100 * sum(1 for x in d if x < want / 10) / len(d),
                    'worst_1s': worst(ts),
                    'steal_pct': 100 * host[0] / max(1, host[1]),
                    'errors': g['errors'],
                }
            finally:
                i.stop()
                u.stop()

        x = rounds([p for p in a.peers if 'pace' in a.ad[p].caps], a.rounds, f)
        raw += x
        cols = [
            'n',
            'got_rate',
            'p1_ms',
            'p50_ms',
            'p99_ms',
            'max_ms',
            'std_ms',
            'std/want',
            'back2back_pct',
            'worst_1s',
            'steal_pct',
            'errors',
        ]
        title = f'pacing at {rate}/s: spacing at the upstream'
        if x:
            T.append(report('s9', a, x, cols, title, 'std_ms'))
        # What the host takes shows as gaps in every peer's starts: look also at the runs that it left alone.
        calm = [y for y in x if y.get('steal_pct', 100) < CALM]
        if calm and len(calm) < len(x):
            T.append(report('s9', a, calm, cols, f'{title}, steal < {CALM} %', 'std_ms'))
save('s9_limit' + ('' if len(what) > 1 else '_' + what[0]), raw, T, {}, a.out)
