"""What a shared limit costs: latency, CPU and the store's work, at a fixed rate (Poisson, 32 connections) through one
gateway whose two rules are its own, decided in the store (atomic), or exchanged with it (periodic).
extra: rate (2000). Starts a redis-server of its own on the load's core."""

import common
from common import *
from adapters.flowgate import Flowgate

RULES = """
      - {{ name: per-client, algorithm: token_bucket, limit: 1000000/1s, burst: 1000000, key: client_ip{0} }}
      - {{ name: total, algorithm: sliding_window, limit: 1000000/1s{0} }}"""
MODES = {
    'local': '',
    'atomic': ', scope: cluster',
    'periodic': ', scope: cluster, sync_interval: 100ms',
}

STORE = port()


class Shared(Flowgate):
    def __init__(self, name, words):
        super().__init__(name, flow=RULES.format(words))

    def config(self, sp, d):
        super().config(sp, d)
        with open(d + '/gateway.yaml', 'a') as f:
            f.write(f'store: {{ redis: redis://127.0.0.1:{STORE} }}\n')


def commands():
    """commands that the store has run so far; those that a script runs are counted, too"""
    out = subprocess.run(
        ['redis-cli', '-p', str(STORE), 'info', 'commandstats'], capture_output=True, text=True, check=True
    ).stdout
    calls = {k: int(v) for k, v in re.findall(r'cmdstat_(\S+?):calls=(\d+)', out)}
    scripts = sum(v for k, v in calls.items() if k.startswith('eval'))
    return scripts, sum(calls.values()) - scripts


a = args(__doc__, ','.join(MODES), more=[Shared(name, words) for name, words in MODES.items()])
rate = int(a.extra[0]) if a.extra else 2000
store = subprocess.Popen(
    ['taskset', '-c', str(LOAD_CORE), 'redis-server', '--port', str(STORE), '--bind', '127.0.0.1', '--save', '']
    + ['--appendonly', 'no', '--dir', RUN],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)


sent = []


def counted(*x, **y):
    r = lg(*x, **y)
    sent.append(r['total_sent'])
    return r


# What `measure` sends to warm up goes to the store, too.
common.lg = counted


def one(p, r):
    before, cpu = commands(), cpu_ns(store.pid)
    sent.clear()
    x = measure(a, p, {}, ['-c', 32, '-d', a.secs, '-r', rate, '-P', '-S', r + 1], u)
    n = sum(sent) / 1000
    scripts, inner = (now - then for now, then in zip(commands(), before))
    x.update(scripts_1k=scripts / n, inner_1k=inner / n, store_cpu_100k=(cpu_ns(store.pid) - cpu) / 1e9 / n * 100)
    return x


try:
    wait_port(STORE, proc=store)
    u = Up()
    try:
        raw = rounds(a.peers, a.rounds, one)
    finally:
        u.stop()
finally:
    store.terminate()
local = {x['round']: x for x in raw if x['peer'] == 'local' and 'fail' not in x}
for x in raw:
    if 'fail' in x or x['round'] not in local:
        continue
    for k in ('p50', 'p99'):
        x['add_' + k] = x[k] - local[x['round']][k]
rows = report(
    's15',
    a,
    raw,
    ['p50', 'p99', 'add_p50', 'add_p99', 'cpu_100k', 'scripts_1k', 'inner_1k', 'store_cpu_100k'],
    f'two shared rules at {rate}/s: latency us (add_* = over local, same round), CPU s per 100k requests, scripts'
    ' and commands in them per 1000 requests',
)
save('s15_cluster', raw, rows, {'rate': rate}, a.out)
