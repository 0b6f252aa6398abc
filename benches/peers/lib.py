"""Common parts of the gateway bench: adapters, processes, CPU accounting, interleaving, tables, JSON."""

import argparse, array, ctypes, importlib.util, json, os, re, resource, signal, socket, ssl, statistics, struct
import subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(HERE, 'tools')
RESULTS = os.path.join(HERE, 'results')
PROXY_CORE, LOAD_CORE = 0, 1
RUN = os.environ.get('GWBENCH_RUN', os.path.join(tempfile.gettempdir(), 'gwbench-run'))
# Where peers/setup.sh puts the peers' binaries.
PEERS = os.environ.get('GWBENCH_PEERS', os.path.expanduser('~/.cache/gwbench'))
DEFAULT_PEERS = 'nginx,haproxy26,flowgate,flowgate-3rules'
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that finally blocks stop what was started
_port = [21000 + (os.getpid() % 50) * 100]


def port():
    while True:
        _port[0] += 1
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(('127.0.0.1', _port[0]))
            return _port[0]
        except OSError:
            pass
        finally:
            s.close()


def certs():
    d = os.path.join(RUN, 'certs')
    c, k = d + '/c.pem', d + '/k.pem'
    if not os.path.exists(c):
        os.makedirs(d, exist_ok=True)
        subprocess.check_call(
            ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
            + ['-keyout', k, '-out', c, '-days', '3650', '-subj', '/CN=bench.local']
            + ['-addext', 'subjectAltName=DNS:bench.local'],
            stderr=subprocess.DEVNULL,
        )
        open(d + '/ck.pem', 'w').write(open(c).read() + open(k).read())
        for f in (c, k, d + '/ck.pem'):
            os.chmod(f, 0o644)
        os.chmod(RUN, 0o755)
        os.chmod(d, 0o755)
    return c, k, d + '/ck.pem'


class Spec(dict):
    """What a scenario asks an adapter for.  Keys (all optional but port and upstream):
    port, upstream (port of the upstream), cores=1, tls, h2, routes (number of extra prefix routes /r/<i>/),
    auth (asks the upstream, at this path, about each request),
    tag (value of the X-Cfg response header, to see which config is in force),
    limit = {'rate': r, 'burst': b, 'key': 'global'|'header'}  reject with 429 above r requests/s,
    pace  = {'rate': r, 'queue': n}  queue the excess and let it out at r/s,
    bodies (request bodies of any size are streamed),
    upstream_tls (the upstream has TLS, with the certificate of certs()), upstream_protocol ('h1' or 'h2'): flowgate only"""

    def __getattr__(self, key):
        return self.get(key)


class Adapter:
    """A peer. Subclass: name, caps, argv(spec, dir) -> list (after writing the config files into dir)."""

    name = '?'
    caps = set()  # of 'tls','h2','h2c','limit','pace','reload','routes','limit-header'
    env = {}
    debounce_ms = 0  # how long the peer waits on purpose, once its file has changed, before it reads it

    def argv(self, spec, d):
        raise NotImplementedError

    def config(self, spec, d):
        pass  # (re)write config files

    def reload(self, inst, spec):  # put a new spec in force; may replace inst.proc
        self.config(spec, inst.dir)
        os.kill(inst.proc.pid, signal.SIGHUP)

    def stop(self, inst):
        inst.proc.terminate()


class Inst:
    def __init__(self, ad, spec, d, proc):
        self.ad, self.spec, self.dir, self.proc = ad, spec, d, proc
        self.extra = []

    def pids(self):
        out = []
        for p in [self.proc.pid] + [q.pid for q in self.extra]:
            out += tree(p)
        return out

    def cpu(self):
        return sum(cpu_ns(p) for p in self.pids()) / 1e9

    def rss(self):
        return sum(rss_kib(p) for p in self.pids())

    def pss(self):
        return sum(pss_kib(p) for p in self.pids())

    def stop(self):
        try:
            self.ad.stop(self)
        except Exception:
            pass
        for p in [self.proc] + self.extra:
            try:
                p.wait(5)
            except Exception:
                for q in tree(p.pid):
                    try:
                        os.kill(q, 9)
                    except OSError:
                        pass
                p.wait()


def tree(pid):
    out, todo = [], [pid]
    while todo:
        p = todo.pop()
        if not os.path.exists(f'/proc/{p}'):
            continue
        out.append(p)
        try:
            for t in os.listdir(f'/proc/{p}/task'):
                with open(f'/proc/{p}/task/{t}/children') as f:
                    todo += map(int, f.read().split())
        except OSError:
            pass
    return out


def cpu_ns(pid):
    """on-cpu time in ns, all threads (schedstat: exact, not tick-sampled)"""
    n = 0
    try:
        for t in os.listdir(f'/proc/{pid}/task'):
            with open(f'/proc/{pid}/task/{t}/schedstat') as f:
                n += int(f.read().split()[0])
    except OSError:
        pass
    return n


def usersys(pids):
    u = s = 0
    for p in pids:
        try:
            f = open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()
            u += int(f[11])
            s += int(f[12])
        except OSError:
            pass
    return u / 100, s / 100


def ctxsw(pids):
    v = 0
    for p in pids:
        try:
            for t in os.listdir(f'/proc/{p}/task'):
                for l in open(f'/proc/{p}/task/{t}/status'):
                    if 'ctxt_switches' in l:
                        v += int(l.split()[1])
        except OSError:
            pass
    return v


def rss_kib(pid):
    try:
        for l in open(f'/proc/{pid}/status'):
            if l.startswith('VmRSS'):
                return int(l.split()[1])
    except OSError:
        pass
    return 0


def pss_kib(pid):
    try:
        for l in open(f'/proc/{pid}/smaps_rollup'):
            if l.startswith('Pss:'):
                return int(l.split()[1])
    except OSError:
        pass
    return 0


def steal():
    f = open('/proc/stat').readline().split()
    return int(f[8]) / 100


def adapters():
    out = {}
    for f in sorted(os.listdir(os.path.join(HERE, 'adapters'))):
        if f.endswith('.py') and not f.startswith('_'):
            sp = importlib.util.spec_from_file_location('ad_' + f[:-3], os.path.join(HERE, 'adapters', f))
            m = importlib.util.module_from_spec(sp)
            sp.loader.exec_module(m)
            for a in m.ADAPTERS:
                out[a.name] = a
    return out


def wait_port(p, t=15, proc=None):
    e = time.time() + t
    while time.time() < e:
        if proc and proc.poll() is not None:
            return False
        try:
            socket.create_connection(('127.0.0.1', p), 0.3).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False


def start(ad, spec, core=PROXY_CORE, wait=30):
    d = tempfile.mkdtemp(prefix=ad.name + '-', dir=RUN)
    os.chmod(d, 0o755)
    spec = Spec(spec)
    spec.setdefault('port', port())
    spec.setdefault('cores', 1)
    ad.config(spec, d)
    argv = ad.argv(spec, d)
    log = open(d + '/log', 'w')
    pre = ['taskset', '-c', str(core)] if core is not None else []
    p = subprocess.Popen(
        pre + argv,
        cwd=d,
        stdout=log,
        stderr=log,
        env={**os.environ, **ad.env},
        start_new_session=True,
        preexec_fn=_nofile,
    )
    i = Inst(ad, spec, d, p)
    i.port = spec['port']
    if not wait_port(i.port, wait, p):
        i.stop()
        raise RuntimeError(f'{ad.name} did not start: ' + open(d + '/log').read()[-1500:])
    e = time.time() + wait
    while time.time() < e:  # until it answers through to the upstream
        try:
            if spec.get('tls'):
                c = ssl.create_default_context()
                c.check_hostname = False
                c.verify_mode = ssl.CERT_NONE
                s = c.wrap_socket(
                    socket.create_connection(('127.0.0.1', i.port), 1), server_hostname='bench.local'
                )
            elif spec.get('h2'):
                o = subprocess.run(
                    ['h2load', '-n', '1', '-c', '1', f'http://127.0.0.1:{i.port}/'],
                    capture_output=True,
                    text=True,
                ).stdout
                if '1 2xx' in o:
                    break
                time.sleep(0.1)
                continue
            else:
                s = socket.create_connection(('127.0.0.1', i.port), 1)
            s.sendall(b'GET / HTTP/1.1\r\nHost: bench.local\r\nX-Key: warm\r\nConnection: close\r\n\r\n')
            r = s.recv(100)
            s.close()
            if r[9:12] in (b'200', b'429', b'503'):
                break
        except OSError:
            pass
        time.sleep(0.05)
    return i


def _nofile():
    ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG: no peer outlives the harness
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200000, 200000))
    except (OSError, ValueError):  # not allowed to raise the hard limit: as far as it goes
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Up:
    def __init__(self, ts=False, core=LOAD_CORE):
        self.port = port()
        self.ts = os.path.join(RUN, f'ts-{self.port}') if ts else None
        a = [TOOLS + '/upstream', str(self.port), '-C', str(core)] + (['-t', self.ts] if ts else [])
        self.proc = subprocess.Popen(a, preexec_fn=_nofile)
        assert wait_port(self.port)
        self.pid = self.proc.pid

    def cpu(self):
        return cpu_ns(self.pid) / 1e9

    def times(self):
        a = array.array('Q')
        with open(self.ts, 'rb') as f:
            n = int.from_bytes(f.read(8), 'little')
            a.frombytes(f.read(8 * n))
        return list(a)

    def stop(self):
        self.proc.kill()
        self.proc.wait()
        if self.ts:
            os.unlink(self.ts)


def lg(p, *a, core=LOAD_CORE, timeout=60):
    o = subprocess.run(
        [TOOLS + '/lg', f'127.0.0.1:{p}', '-C', str(core)] + [str(x) for x in a],
        capture_output=True,
        text=True,
        timeout=timeout,
        preexec_fn=_nofile,
    )
    if not o.stdout.strip():
        raise RuntimeError('lg: ' + o.stderr)
    return json.loads(o.stdout.strip().splitlines()[-1])


def lg_bg(p, *a, core=LOAD_CORE):
    return subprocess.Popen(
        [TOOLS + '/lg', f'127.0.0.1:{p}', '-C', str(core)] + [str(x) for x in a],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_nofile,
    )


def args(desc, default_peers=None, rounds=5, secs=2.0, more=()):
    ap = argparse.ArgumentParser(description=desc)
    ap.add_argument('--peers', default=default_peers or DEFAULT_PEERS)
    ap.add_argument('--rounds', type=int, default=rounds)
    ap.add_argument('--secs', type=float, default=secs)
    ap.add_argument('--base', default='nginx', help='peer that the ratios are taken against')
    ap.add_argument('--out')
    ap.add_argument('--list', action='store_true')
    ap.add_argument('extra', nargs='*')
    a = ap.parse_args()
    os.makedirs(RUN, exist_ok=True)
    os.chmod(RUN, 0o755)
    os.makedirs(RESULTS, exist_ok=True)
    certs()
    al = adapters() | {x.name: x for x in more}
    if a.list:
        print('\n'.join(sorted(f'{n:16} {sorted(x.caps)}' for n, x in al.items())))
        sys.exit()
    a.peers = [x for x in a.peers.split(',') if x]
    for x in a.peers:
        if x not in al:
            sys.exit(f'no adapter {x}; have {sorted(al)}')
    a.ad = al
    return a


def pct(v, q):
    v = sorted(v)
    return v[min(len(v) - 1, int(q * len(v)))] if v else float('nan')


def worst(ts, w=1e9):
    """the most arrivals within any w nanoseconds"""
    j = b = 0
    for i in range(len(ts)):
        while ts[i] - ts[j] >= w:
            j += 1
        b = max(b, i - j + 1)
    return b


def records(f):
    """lg -T: (scheduled, sent, done, status, connection), times in ns; status 0 = failed"""
    return list(struct.iter_unpack('<QQQII', open(f, 'rb').read()))


def med(v):
    return statistics.median(v) if v else float('nan')


def fmt(v):
    if v is None:
        return '-'
    if isinstance(v, str):
        return v
    a = abs(v)
    return f'{v:.0f}' if a >= 1000 else f'{v:.1f}' if a >= 100 else f'{v:.2f}' if a >= 1 else f'{v:.3f}'


def mm(v):
    return f'{fmt(med(v))} [{fmt(min(v))}-{fmt(max(v))}]' if v else '-'


def table(rows, cols, title=''):
    if title:
        print('\n## ' + title)
    w = [max(len(str(c)), *(len(str(r.get(c, ''))) for r in rows)) if rows else len(c) for c in cols]
    print('| ' + ' | '.join(c.ljust(x) for c, x in zip(cols, w)) + ' |')
    print('|' + '|'.join('-' * (x + 2) for x in w) + '|')
    for r in rows:
        print('| ' + ' | '.join(str(r.get(c, '')).ljust(x) for c, x in zip(cols, w)) + ' |')
    sys.stdout.flush()


def paired(raw, base, peers, key):
    """per-round ratios to the base peer of the same round (noise that lasts longer than a round cancels)"""
    out = {}
    b = {x['round']: x[key] for x in raw if x['peer'] == base and x.get(key)}
    for p in peers:
        r = [x[key] / b[x['round']] for x in raw if x['peer'] == p and x.get(key) and x['round'] in b]
        out[p] = r
    return out


def save(name, raw, rows, meta=None, out=None):
    f = out or os.path.join(RESULTS, f'{name}.json')
    json.dump(
        {
            'scenario': name,
            'when': time.strftime('%FT%T'),
            'kernel': os.uname().release,
            'load': os.getloadavg(),
            'meta': meta or {},
            'table': rows,
            'raw': raw,
        },
        open(f, 'w'),
        indent=1,
    )
    print(f'-> {f}')


def rounds(peers, n, fn):
    """interleave: each round runs every peer once, in an order that rotates"""
    raw = []
    for r in range(n):
        order = peers[r % len(peers) :] + peers[: r % len(peers)]
        if r % 2:
            order = order[::-1]
        for p in order:
            s0 = steal()
            try:
                x = fn(p, r)
            except Exception as e:
                x = {'fail': str(e)[:300]}
                print(f'{p} round {r}: {x["fail"]}', file=sys.stderr)
            if x is None:
                continue
            for y in x if isinstance(x, list) else [x]:
                raw.append(
                    {'peer': p, 'round': r, 'steal': round(steal() - s0, 2), 'load': os.getloadavg()[0], **y}
                )
    return raw
