from lib import *


def measure(a, p, spec, lgargs, up, core=PROXY_CORE):
    """start the peer fresh, warm it, run lg, return figures incl. proxy CPU per 100k requests / per GB"""
    if p == 'direct':
        lg(up.port, *lgargs[:2], '-d', 0.3)
        c0 = up.cpu()
        r = lg(up.port, *lgargs)
        r['up_cpu_100k'] = (up.cpu() - c0) / max(1, r['total_sent']) * 1e5
        r['cpu'] = None
        return r
    i = start(a.ad[p], {**spec, 'upstream': up.port}, core)
    try:
        warm = [x for x in lgargs]
        warm[warm.index('-d') + 1] = 0.5
        lg(i.port, *warm)
        pids = i.pids()
        c0 = i.cpu()
        us0 = usersys(pids)
        w0 = ctxsw(pids)
        u0 = up.cpu()
        t0 = time.time()
        r = lg(i.port, *lgargs)
        cpu = i.cpu() - c0
        us = usersys(pids)
        w = ctxsw(pids) - w0
        el = time.time() - t0
        n = max(1, r['total_sent'])
        us = (us[0] - us0[0], us[1] - us0[1])
        r.update(
            cpu=cpu,
            cpu_100k=cpu / n * 1e5,
            user_share=us[0] / max(0.01, sum(us)),
            csw_req=w / n,
            busy=cpu / el,
            up_cpu_100k=(up.cpu() - u0) / n * 1e5,
        )
        if r['mbps'] > 20:
            r['cpu_per_gb'] = cpu / (r['mbps'] * r['dur'] / 1e3)
        r['rss'] = i.rss()
        return r
    finally:
        i.stop()


def variant(a):
    """what the words at the end ask for: a spec, options of lg, and what they are called"""
    spec, load = {}, []
    if 'rejected' in a.extra:
        spec = {'limit': {'rate': 1}}
    if 'auth' in a.extra:
        spec = {'auth': '/s/0'}
    if 'auth-body' in a.extra:
        spec = {'auth': '/auth'}
    if 'browser' in a.extra:
        load += ['-B', '-p', '/api/v1/orders/1234567890/items?page=2&sort=asc']
    if 'connections' in a.extra:
        load += ['-n']
    kind = ''.join(f' {x}' for x in a.extra if not x.isdigit())
    return spec, load, f' ({kind[1:]})' if kind else ''


def report(name, a, raw, cols, title, key='cpu_100k'):
    base = a.base if a.base in a.peers else a.peers[0]
    pr = paired([x for x in raw if 'fail' not in x], base, a.peers, key)
    rows = []
    for p in a.peers:
        x = [y for y in raw if y['peer'] == p and 'fail' not in y]
        if not x:
            continue
        row = {'peer': p, 'rounds': len(x)}
        for c in cols:
            row[c] = mm([y[c] for y in x if y.get(c) is not None])
        row[f'{key} / {base}'] = mm(pr[p]) if pr.get(p) else '-'
        # Noise only ever adds cost: best round against best round.
        best = max if key in ('rps', 'mbps', 'hps') else min
        B = [y[key] for y in raw if y['peer'] == base and y.get(key)]
        X = [y[key] for y in x if y.get(key)]
        row['best/best'] = fmt(best(X) / best(B)) if X and B else '-'
        rows.append(row)
    rows.sort(key=lambda r: med(pr[r['peer']]) if pr.get(r['peer']) else 0)
    table(rows, ['peer', 'rounds'] + cols + [f'{key} / {base}', 'best/best'], title)
    return rows
