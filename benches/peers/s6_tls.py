"""TLS 1.3, ECDSA P-256, X25519: proxy CPU per 1000 handshakes (full / resumed; each with one proxied GET),
and 1 MiB bodies. extra: any of hs bulk"""

from common import *

a = args(__doc__)
a.peers = [p for p in a.peers if 'tls' in a.ad[p].caps]
u = Up()
what = a.extra or ['hs', 'bulk']
raw = []
T = []


def hs(p, r):
    i = start(a.ad[p], {'upstream': u.port, 'tls': 1})
    out = []
    try:
        for mode in ('full', 'resumed'):
            fl = ['-r'] if mode == 'resumed' else []

            def run(d):
                return json.loads(
                    subprocess.run(
                        [
                            TOOLS + '/tlshs',
                            f'127.0.0.1:{i.port}',
                            '-c',
                            '4',
                            '-d',
                            str(d),
                            '-C',
                            str(LOAD_CORE),
                        ]
                        + fl,
                        capture_output=True,
                        text=True,
                        timeout=60,
                    ).stdout
                )

            run(0.3)
            c0 = i.cpu()
            x = run(a.secs)
            c = i.cpu() - c0
            out.append(
                {
                    'mode': mode,
                    'hps': x['hps'],
                    'resumed_pct': 100 * x['resumed'] / max(1, x['n']),
                    'cpu_ms_hs': c / max(1, x['n']) * 1e3,
                    'errors': x['errors'],
                    'hs_per_core_s': x['n'] / c,
                }
            )
    finally:
        i.stop()
    return out


if 'hs' in what:
    raw += rounds(a.peers, a.rounds, hs)
    for m in ('full', 'resumed'):
        T.append(
            report(
                's6',
                a,
                [x for x in raw if x.get('mode') == m],
                ['hps', 'cpu_ms_hs', 'hs_per_core_s', 'resumed_pct', 'errors'],
                f'TLS handshakes: {m}',
                'cpu_ms_hs',
            )
        )
if 'bulk' in what:
    rb = rounds(
        a.peers,
        a.rounds,
        lambda p, r: {
            **measure(a, p, {'tls': 1}, ['-c', 8, '-d', a.secs, '-s', '-p', '/s/1048576'], u),
            'mode': 'bulk',
        },
    )
    raw += rb
    T.append(report('s6', a, rb, ['mbps', 'cpu_per_gb', 'busy'], 'TLS bulk, 1 MiB bodies', 'cpu_per_gb'))
u.stop()
save('s6_tls' + ('' if len(what) > 1 else '_' + what[0]), raw, T, {}, a.out)
