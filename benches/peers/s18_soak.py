"""A soak: 1000 requests/s for 10 minutes while the file is edited every 2 s, and one of three servers of the upstream
is killed every 1 to 4 s and comes back after 0.5 to 2 s.  Keys rotate through more than their table holds.  Beside
that, clients leave in every state: after half a head, after a request, in the midst of a response, with half an upload.
Memory and descriptors are sampled every 10 s; figures are compared between the second minute and the last one.  Exits
1 if the process ended, or its log has a panic.  extra: seconds (600)"""

from common import *
from lib import _nofile
import random, threading

a = args(__doc__, 'flowgate', rounds=1)
SECONDS = int(a.extra[0]) if a.extra else 600
random.seed(7)
EXE = os.environ.get('FLOWGATE', os.path.join(HERE, '..', '..', 'target', 'release', 'flowgate'))
stop = threading.Event()
counts = {'edits': 0, 'kills': 0, 'left': 0}


def server(p):
    proc = subprocess.Popen([TOOLS + '/upstream', str(p), '-C', str(LOAD_CORE)], preexec_fn=_nofile)
    assert wait_port(p)
    return proc


def flap(ports, servers):
    while not stop.wait(random.uniform(1, 4)):
        n = random.randrange(len(ports))
        servers[n].kill()
        servers[n].wait()
        counts['kills'] += 1
        stop.wait(random.uniform(0.5, 2))
        servers[n] = server(ports[n])


def text(ports, listen, n):
    urls = ', '.join(f'{{ url: http://127.0.0.1:{p} }}' for p in ports)
    routes = ''.join(
        f'\n  - {{ name: r{i}, match: {{ path_prefix: /r/{i} }}, upstream: u }}' for i in range(n % 7)
    )
    return f"""workers: 2
access_log: access.log
listeners:
  - {{ name: l, listen: 127.0.0.1:{listen} }}
upstreams:
  - name: u
    servers: [{urls}]
routes:
  - name: all
    match: {{ path_prefix: / }}
    upstream: u
    flow:
      - {{ name: client, limit: {20 + n % 3}/1s, key: 'header:x-key', max_keys: 10000 }}
      - {{ name: total, algorithm: sliding_window, limit: {5000 + n}/1s }}
      - {{ name: in-flight, concurrency: 500 }}{routes}
end: true
"""


def write(d, ports, listen, n):
    with open(d + '/new', 'w') as f:
        f.write(text(ports, listen, n))
    os.rename(d + '/new', d + '/gateway.yaml')


def edit(d, ports, listen):
    while not stop.wait(2):
        counts['edits'] += 1
        write(d, ports, listen, counts['edits'])


def leave(listen):
    """clients that leave, each in another state"""
    begin = b'GET /%d HTTP/1.1\r\nhost: a\r\n'
    upload = b'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n' + bytes(1000)
    while not stop.wait(0.05):
        try:
            s = socket.create_connection(('127.0.0.1', listen), 2)
            s.settimeout(1)
            kind = counts['left'] % 4
            s.sendall([begin % 1, begin % 2 + b'\r\n', begin % 3 + b'\r\n', upload][kind])
            if kind == 2:
                s.recv(10)
            s.close()
        except OSError:
            pass
        counts['left'] += 1


def sample(pid):
    with open(f'/proc/{pid}/smaps_rollup') as f:
        dirty = next(int(line.split()[1]) for line in f if line.startswith('Private_Dirty'))
    return dirty / 1024, len(os.listdir(f'/proc/{pid}/fd'))


ports, listen = [port() for _ in range(3)], port()
servers = [server(p) for p in ports]
d = tempfile.mkdtemp(prefix='soak-', dir=RUN)
write(d, ports, listen, 0)
gateway = load = None
try:
    with open(d + '/log', 'w') as log:
        argv = [EXE, 'run', '-c', 'gateway.yaml']
        gateway = subprocess.Popen(argv, cwd=d, stdout=log, stderr=log, preexec_fn=_nofile)
    assert wait_port(listen)
    work = [(flap, ports, servers), (edit, d, ports, listen), (leave, listen)]
    threads = [threading.Thread(target=f, args=x, daemon=True) for f, *x in work]
    for t in threads:
        t.start()
    load = lg_bg(listen, '-c', 64, '-d', SECONDS, '-w', 0, '-r', 1000, '-K', 50_000)
    samples = []
    while load.poll() is None:
        time.sleep(min(10, SECONDS / 10))
        if gateway.poll() is not None:
            break
        samples.append(sample(gateway.pid))
        print('%6.1f MiB  %4d descriptors' % samples[-1], flush=True)
    answers = json.loads(load.communicate()[0])
    stop.set()
    for t in threads:
        t.join()
    tenth = max(1, len(samples) // 10)
    second, last = samples[tenth : 2 * tenth], samples[-tenth:]
    with open(d + '/log', errors='replace') as f:
        panics = sum('panicked' in line for line in f)
    row = {
        **counts,
        'requests': answers['total_sent'],
        'other': answers['n'] - sum(answers[k] for k in ('ok', 's429', 's503', 's404')),
        **{k: answers[k] for k in ('ok', 's429', 's503', 's404', 'errors', 'unanswered', 'reconnects')},
        'panics': panics,
        'MiB in the second tenth': round(max(x[0] for x in second), 1),
        'in the last': round(max(x[0] for x in last), 1),
        'descriptors then': max(x[1] for x in second),
        'at last': max(x[1] for x in last),
        'p99_ms': answers['p99'] / 1e3,
    }
    for name, value in row.items():
        print(f'{name:26} {value}')
    sys.exit(0 if gateway.poll() is None and panics == 0 else 1)
finally:
    stop.set()
    for p in [gateway, load, *servers]:
        if p:
            p.kill()
            p.wait()
