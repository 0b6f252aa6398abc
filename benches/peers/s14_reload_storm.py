"""Reloads without a pause, under load and with a limit in force: 100,000 requests at 2000/s while the
configuration is replaced every 100 ms.  Every reload changes a response header and the number of other routes and
leaves the limit (1000/s, burst 100, so that about half is refused) as it is.  A request fails if it has no answer
or one that is neither 200 nor 429.  Admissions are counted at the upstream; each sliding second may hold limit +
burst of them.  Exits 1 if a request failed or the limit was exceeded.  extra: requests (100000), ms between
reloads (100), and `hup` to send SIGHUP after each write (a debounced watcher alone takes several edits as one)"""

from common import *
import urllib.request

a = args(__doc__, 'flowgate', rounds=1)
hup = 'hup' in a.extra
numbers = [int(x) for x in a.extra if x != 'hup']
REQUESTS = numbers[0] if numbers else 100_000
EVERY = (numbers[1] if len(numbers) > 1 else 100) / 1e3
OFFERED, LIMIT, BURST = 2000, 1000, 100
a.peers = [p for p in a.peers if {'reload', 'limit'} <= a.ad[p].caps]


def reloads(inst):
    """how many reloads the peer says it has done, where it can say so"""
    if 'adm' not in inst.spec or 'flowgate' not in inst.ad.name:
        return 0
    with urllib.request.urlopen(f'http://127.0.0.1:{inst.spec["adm"]}/metrics', timeout=5) as r:
        found = re.findall(r'(?m)^flowgate_config_reloads_total\{([^}]*)\} (\S+)$', r.read().decode())
    bad = {labels: n for labels, n in found if not re.search('ok|success|applied', labels) and float(n)}
    if bad:
        raise RuntimeError(f'reloads were refused: {bad}')
    return sum(float(n) for _, n in found)


def storm(inst, load, spec):
    """replaces the configuration until the load is over; returns how many times"""
    n = 0
    due = time.monotonic()
    while load.poll() is None:
        n, due = n + 1, due + EVERY
        sp = Spec({**inst.spec, **spec, 'tag': f'v{n}', 'routes': n % 10})
        inst.ad.reload(inst, sp)
        if hup:
            os.kill(inst.proc.pid, signal.SIGHUP)
        time.sleep(max(0, due - time.monotonic()))
    return n


def f(p, r):
    u, i = Up(ts=True), None
    try:
        spec = {'upstream': u.port, 'limit': {'rate': LIMIT, 'burst': BURST, 'key': 'header'}}
        i = start(a.ad[p], {**spec, 'tag': 'v0'})
        time.sleep(1.5)
        n0, r0, rec = len(u.times()), reloads(i), i.dir + '/records'
        secs = REQUESTS / OFFERED
        load = lg_bg(i.port, '-c', 64, '-d', secs, '-w', 0, '-r', OFFERED, '-K', 1, '-T', rec)
        written = storm(i, load, spec)
        g, ts, answers = json.loads(load.communicate()[0]), u.times()[n0:], records(rec)
        time.sleep(1)
        odd = sum(1 for x in answers if x[3] not in (0, 200, 429))
        span = (ts[-1] - ts[0]) / 1e9
        return {
            'requests': len(answers) + g['unanswered'],
            'failed': g['errors'] + g['unanswered'] + odd,
            'refused': g['s429'],
            'reconnects': g['reconnects'],
            'written': written,
            'reloads': reloads(i) - r0,
            'admitted/allowed': len(ts) / (LIMIT * span + BURST),
            'worst_1s': worst(ts),
            'p99_ms': g['p99'] / 1e3,
            'max_ms': g['max'] / 1e3,
            'rss_mib': i.rss() / 1024,
        }
    finally:
        if i:
            i.stop()
        u.stop()


raw = rounds(a.peers, a.rounds, f)
cols = ['requests', 'failed', 'refused', 'reconnects', 'written', 'reloads', 'admitted/allowed', 'worst_1s']
cols += ['p99_ms', 'max_ms', 'rss_mib']
title = f'{OFFERED}/s on a limit of {LIMIT}/s + {BURST}, configuration replaced every {EVERY * 1e3:.0f} ms'
save('s14_reload_storm', raw, [report('s14', a, raw, cols, title, 'max_ms')], {'hup': hup}, a.out)
# Half a percent for what bunches up on the way from the decision to the upstream.
for x in raw:
    if 'fail' in x or x['failed'] or x['worst_1s'] > (LIMIT + BURST) * 1.005:
        sys.exit(f'{x["peer"]}, round {x["round"]}: a request failed or the limit was exceeded')
