"""HTTP/2 (prior knowledge, cleartext) downstream -> HTTP/1.1 upstream: h2load -c 10 -m 100"""

from common import *

a = args(__doc__)
a.peers = [p for p in a.peers if 'h2c' in a.ad[p].caps]
u = Up()


def f(p, r):
    i = start(a.ad[p], {'upstream': u.port, 'h2': 1})
    try:

        def run(d):
            return subprocess.run(
                [
                    'taskset',
                    '-c',
                    str(LOAD_CORE),
                    'h2load',
                    '-c',
                    '10',
                    '-m',
                    '100',
                    '-D',
                    str(d),
                    '-t',
                    '1',
                    f'http://127.0.0.1:{i.port}/',
                ],
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout

        run(1)
        c0 = i.cpu()
        o = run(max(1, int(a.secs)))
        c = i.cpu() - c0
        n = int(re.search(r'requests: \d+ total, \d+ started, (\d+) done', o).group(1))
        ok = int(re.search(r'(\d+) 2xx', o).group(1))
        return {
            'rps': float(re.search(r'([\d.]+) req/s', o).group(1)),
            'cpu_100k': c / max(1, n) * 1e5,
            'not2xx': n - ok,
        }
    finally:
        i.stop()


raw = rounds(a.peers, a.rounds, f)
u.stop()
save(
    's7_h2',
    raw,
    [
        report('s7', a, raw, ['rps', 'cpu_100k', 'not2xx'], 'h2c -> h1, -c 10 -m 100', 'cpu_100k'),
        report('s7', a, raw, ['rps'], 'h2c -> h1: req/s', 'rps'),
    ],
    {},
    a.out,
)
