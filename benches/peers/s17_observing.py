"""What a preview and traces cost a request: each is switched on and off in one running gateway, in turn, and the rounds
are compared in pairs. extra args: `cpu` (default; CPU per request at a fixed rate) or `instr` (user instructions of the
worker, by callgrind), then names of cases: preview, preview-3rules, preview-4th-rule (the new file adds a rule),
preview-other-key (the new file limits by another key), preview-other-proxies (it trusts other proxies),
preview-log (with the access log), preview-names (`admin.show_keys`), preview-store (two of the three rules in a Redis
of its own), traces, traces-3rules, traces-all (default all)"""

import http.server, threading, urllib.request

from adapters.flowgate import THREE_RULES, Flowgate
from common import *

RATE, CONNECTIONS = 5000, 32
CASES = {
    'preview': ('flowgate', 'preview'),
    'preview-3rules': ('flowgate-3rules', 'preview'),
    'preview-4th-rule': ('flowgate-3rules', 'preview of a 4th rule'),
    'preview-other-key': ('flowgate-3rules', 'preview of another key'),
    'preview-other-proxies': ('flowgate-3rules', 'preview of other proxies'),
    'preview-log': ('flowgate-log-3rules', 'preview'),
    'preview-names': ('flowgate-names-3rules', 'preview'),
    'preview-store': ('flowgate-store-3rules', 'preview'),
    'traces': ('flowgate', '1%'),
    'traces-3rules': ('flowgate-3rules', '1%'),
    'traces-all': ('flowgate', '100%'),
}

STORE = port()


class WithMore(Flowgate):
    """flowgate with more in its file"""

    def __init__(self, name, more, flow):
        super().__init__(name, flow=flow)
        self.more = more

    def config(self, sp, d):
        super().config(sp, d)
        file = d + '/gateway.yaml'
        text = self.more(open(file).read())
        with open(file, 'w') as f:
            f.write(text)


a = args(
    __doc__,
    'flowgate,flowgate-3rules',
    rounds=8,
    secs=2,
    more=[
        WithMore(
            'flowgate-names-3rules', lambda text: text.replace('admin: {', 'admin: { show_keys: true,', 1), THREE_RULES
        ),
        WithMore(
            'flowgate-store-3rules',
            lambda text: text + f'store: {{ redis: redis://127.0.0.1:{STORE} }}\n',
            THREE_RULES.replace('1000000/1s', '1000000/1s, scope: cluster'),
        ),
    ],
)
how = a.extra.pop(0) if a.extra[:1] in (['cpu'], ['instr']) else 'cpu'
u = Up()
store = subprocess.Popen(
    ['taskset', '-c', str(LOAD_CORE), 'redis-server', '--port', str(STORE), '--bind', '127.0.0.1', '--save', '']
    + ['--appendonly', 'no', '--dir', RUN],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        self.send_response(200)
        self.send_header('content-length', '2')
        self.end_headers()
        self.wfile.write(b'{}')

    def log_message(self, *_):
        pass


collector = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Collector)
threading.Thread(target=collector.serve_forever, daemon=True).start()


class Counted(Adapter):
    """A peer under callgrind."""

    def __init__(self, peer):
        self.peer, self.name, self.env = peer, 'vg-' + peer.name, peer.env

    def config(self, sp, d):
        self.peer.config(sp, d)

    def argv(self, sp, d):
        callgrind = ['valgrind', '--tool=callgrind', '--instr-atstart=no', '--separate-threads=yes']
        return callgrind + [f'--callgrind-out-file={d}/counted'] + self.peer.argv(sp, d)


class Switch:
    """Turns a preview or traces of a gateway on and off."""

    def __init__(self, inst, what):
        self.admin, self.what = f'http://127.0.0.1:{inst.spec["adm"]}', what
        self.is_preview = what.startswith('preview')
        self.file = inst.dir + '/gateway.yaml'
        self.plain = open(self.file).read()

    def ask(self, path, method='GET', body=None):
        request = urllib.request.Request(self.admin + path, body, method=method)
        return urllib.request.urlopen(request, timeout=60).read().decode()

    def turn(self, on):
        if not self.is_preview:
            return self.trace(self.what if on else None)
        if on:
            # Other rules than those in force, with states of their own.
            new = self.plain.replace('limit: 1000000/1s', 'limit: 999999/1s') + '\n# new\n'
            if self.what == 'preview of a 4th rule':
                last = '{ name: in-flight, concurrency: 20000 }'
                new = new.replace(last, f'{last}\n      - {{ name: more, limit: 1000000/1s }}')
            if self.what == 'preview of another key':
                new = new.replace('key: client_ip', 'key: "header:host"')
            if self.what == 'preview of other proxies':
                new = 'trusted_proxies: [192.0.2.1]\n' + new
            self.ask('/preview?for=1h', 'POST', new.encode())
        elif '"running"' in self.report():
            self.ask('/preview', 'DELETE')
        return None

    def report(self):
        try:
            return self.ask('/preview')
        except urllib.error.HTTPError:
            return ''

    def trace(self, sample):
        endpoint = f'http://127.0.0.1:{collector.server_port}'
        line = f'tracing: {{ otlp: {{ endpoint: "{endpoint}" }}, sample: {sample} }}\n'
        text = line + self.plain if sample else self.plain
        if open(self.file).read() == text:
            return
        before = self.hash()
        with open(self.file + '.new', 'w') as f:
            f.write(text)
        os.rename(self.file + '.new', self.file)
        while self.hash() == before:
            time.sleep(0.05)

    def hash(self):
        return re.search(r'hash (\w+)', self.ask('/readyz?verbose')).group()

    def check(self, on, sent):
        """that it is on, and has seen the requests"""
        if not self.is_preview:
            return
        seen = json.loads(self.report() or '{}')
        assert (seen.get('state') == 'running') == on, seen
        assert not on or seen['requests']['compared'] >= sent, (seen['requests'], sent)


def by_cpu(case, peer, what):
    i = start(a.ad[peer], {'upstream': u.port})
    try:
        switch = Switch(i, what)
        lg(i.port, '-c', CONNECTIONS, '-d', 1, '-r', RATE, '-P')
        raw = []
        for n in range(a.rounds):
            for on in (False, True) if n % 2 else (True, False):
                switch.turn(on)
                lg(i.port, '-c', CONNECTIONS, '-d', 0.3, '-r', RATE, '-P')
                cpu, us = i.cpu(), usersys(i.pids())
                r = lg(i.port, '-c', CONNECTIONS, '-d', a.secs, '-r', RATE, '-P', '-S', n + 1)
                cpu = (i.cpu() - cpu) / r['total_sent'] * 1e6
                user, system = (y - x for x, y in zip(us, usersys(i.pids())))
                switch.check(on, r['total_sent'])
                share = user / max(0.01, user + system)
                row = {'peer': 'on' if on else 'off', 'round': n, 'us': cpu, 'user_share': share, 'case': case}
                raw.append(row)
        return raw
    finally:
        i.stop()


def by_instructions(case, peer, what):
    raw = []
    for on in (False, True):
        i = start(Counted(a.ad[peer]), {'upstream': u.port}, wait=120)
        try:
            switch = Switch(i, what)
            switch.turn(on)
            lg(i.port, '-c', CONNECTIONS, '-d', 1)
            pid = str(i.proc.pid)
            count = lambda word: subprocess.run(['callgrind_control', '-i', word, pid], capture_output=True)
            count('on')
            sent = lg(i.port, '-c', CONNECTIONS, '-d', a.secs, '-w', 0)['total_sent']
            count('off')
            switch.check(on, sent)
        finally:
            i.stop()
        # The worker's; the other threads' depend on the time that passes.
        totals = [0]
        for name in os.listdir(i.dir):
            if name.startswith('counted'):
                for line in open(f'{i.dir}/{name}', errors='replace'):
                    if line.startswith('totals: '):
                        totals.append(int(line.split()[1]))
        state = 'on' if on else 'off'
        raw.append({'peer': state, 'round': 0, 'instr': max(totals) / sent, 'case': case, 'n': sent, 'dir': i.dir})
    return raw


key, measure_case = ('instr', by_instructions) if how == 'instr' else ('us', by_cpu)
raws, rows = [], []
for case in a.extra or CASES:
    raw = measure_case(case, *CASES[case])
    raws += raw
    ratios = paired(raw, 'off', ['on'], key)['on']
    of = lambda peer: mm([x[key] for x in raw if x['peer'] == peer])
    row = {'case': case, 'rounds': len(ratios), 'off': of('off'), 'on': of('on'), 'on / off': mm(ratios)}
    rows.append(row)
    print(row, flush=True)
u.stop()
store.terminate()
store.wait()
table(rows, ['case', 'rounds', 'off', 'on', 'on / off'], f'{key} per request')
save('s17_observing', raws, rows, {'how': how, 'rate': RATE}, a.out)
