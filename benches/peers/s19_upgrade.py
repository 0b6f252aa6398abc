"""Ten upgrades (USR2) one after another at 2000 requests/s over 64 connections, half of the clients with a new
connection for each request.  Every key is within its limit, so each request must get 200.  Exits 1 if one did not, if a
connection was refused, or if an upgrade did not happen.  extra: `keys N` first gives so many keys a budget that is in
use, so that the state of each moves with every upgrade"""

from common import *
from lib import _nofile
import urllib.request

a = args(__doc__, 'flowgate', rounds=1)
KEYS = int(a.extra[a.extra.index('keys') + 1]) if 'keys' in a.extra else 1000
EXE = os.environ.get('FLOWGATE', os.path.join(HERE, '..', '..', 'target', 'release', 'flowgate'))
UPGRADES, EVERY = 10, 6 + KEYS / 100_000
listen, admin, up = port(), port(), Up()
d = tempfile.mkdtemp(prefix='upgrade-', dir=RUN)
with open(d + '/gateway.yaml', 'w') as f:
    f.write(f"""workers: 2
access_log: off
admin: {{ listen: 127.0.0.1:{admin} }}
listeners:
  - {{ name: l, listen: 127.0.0.1:{listen} }}
upstreams:
  - {{ name: u, servers: [{{ url: http://127.0.0.1:{up.port} }}] }}
routes:
  - name: all
    match: {{ path_prefix: / }}
    upstream: u
    flow:
      - {{ name: client, algorithm: fixed_window, limit: 100000/1d, key: 'header:x-key', max_keys: 1100000 }}
      - {{ name: total, algorithm: sliding_window, limit: 100000/1s }}
end: true
""")


def pid():
    try:
        with open(d + '/pid') as f:
            return int(f.read())
    except (OSError, ValueError):
        return 0


def keys():
    """how many keys the process in charge knows"""
    with urllib.request.urlopen(f'http://127.0.0.1:{admin}/metrics', timeout=5) as r:
        found = re.search(r'(?m)^flowgate_flow_keys\{[^}]*rule="client"[^}]*\} (\S+)$', r.read().decode())
    return int(float(found.group(1))) if found else -1


def upgrade():
    """returns the seconds from the signal until another process is in charge"""
    old, begin = pid(), time.monotonic()
    os.kill(old, signal.SIGUSR2)
    while pid() in (old, 0):
        if time.monotonic() - begin > 60:
            raise RuntimeError(open(d + '/log').read()[-2000:])
        time.sleep(0.002)
    return time.monotonic() - begin


seen, loads, took = set(), [], []
try:
    with open(d + '/log', 'w') as log:
        argv = [EXE, 'run', '-c', 'gateway.yaml', '--pid-file', d + '/pid']
        first = subprocess.Popen(argv, cwd=d, stdout=log, stderr=log, preexec_fn=_nofile)
    assert wait_port(listen)
    while not pid():
        time.sleep(0.01)
    seen.add(pid())
    lg(listen, '-c', 32, '-d', 1 + KEYS / 8000, '-r', 8000, '-w', 0, '-K', KEYS, timeout=900)
    before = keys()
    secs = UPGRADES * EVERY + 4
    common = ['-d', secs, '-r', 1000, '-w', 0, '-K', min(KEYS, 1000)]
    loads = [lg_bg(listen, '-c', 32, *common), lg_bg(listen, '-c', 32, '-n', *common)]
    time.sleep(2)
    for _ in range(UPGRADES):
        due = time.monotonic() + EVERY
        took.append(upgrade())
        seen.add(pid())
        time.sleep(max(0, due - time.monotonic()))
    answers = [json.loads(load.communicate()[0]) for load in loads]
    total = {k: sum(x[k] for x in answers) for k in ('n', 'ok', 'errors', 'unanswered', 'reconnects')}
    failed = total['n'] - total['ok'] + total['errors'] + total['unanswered']
    print(f'upgrades {len(seen) - 1}, seconds each: {min(took):.2f} to {max(took):.2f}')
    print(f'keys before {before}, after {keys()}')
    print(f'requests {total["n"]}, failed {failed}, {total}')
    print('p99 ms', [x['p99'] / 1e3 for x in answers], 'max', [x['max'] / 1e3 for x in answers])
    sys.exit(0 if failed == 0 and len(seen) == UPGRADES + 1 else 1)
finally:
    for load in loads:
        load.kill()
        load.wait()
    for p in seen:
        try:
            os.kill(p, signal.SIGKILL)
        except OSError:
            pass
    first.wait()
    up.stop()
