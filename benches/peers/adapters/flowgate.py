"""flowgate itself: $FLOWGATE, or what `cargo build --release` left in target/."""

from lib import *

EXE = os.environ.get('FLOWGATE', os.path.join(HERE, '..', '..', 'target', 'release', 'flowgate'))

# Three rules that the load never reaches, so that they cost and never refuse: one limiter per client, one for all
# by a window, one on what is in flight.
THREE_RULES = """
      - { name: per-client, algorithm: token_bucket, limit: 1000000/1s, burst: 1000000, key: client_ip }
      - { name: total, algorithm: sliding_window, limit: 1000000/1s }
      - { name: in-flight, concurrency: 20000 }"""


class Flowgate(Adapter):
    """burst 0 ("no burst") becomes `least_burst`.  A bucket that holds one token loses whatever comes late: with
    arrivals 0.1 ms apart it cannot hand out 1000/s exactly.  Ten tokens, 10 ms of such a limit, make up for it."""

    caps = {'tls', 'h2', 'h2c', 'limit', 'limit-header', 'pace', 'reload', 'routes', 'auth'}
    debounce_ms = 100

    def __init__(self, name, flow='', least_burst=10, log='off'):
        self.name, self.flow, self.least_burst, self.log = name, flow, least_burst, log

    def rules(self, sp):
        """the lines under a route that make it limit or pace"""
        if sp.limit:
            key = 'header:x-key' if sp.limit.get('key') == 'header' else 'route'
            burst = max(sp.limit.get('burst') or 0, self.least_burst)
            rate = sp.limit['rate']
            return (
                f'\n    flow:\n      - {{ name: limit, algorithm: token_bucket, limit: {rate}/1s,'
                f' burst: {burst}, key: {key} }}'
            )
        if sp.pace:
            rate, queue = sp.pace['rate'], sp.pace['queue']
            return f'\n    pacing: {{ rate: {rate}/1s, max_wait: 5m, max_queue: {queue} }}'
        return f'\n    flow:{self.flow}' if self.flow else ''

    def server(self, sp):
        return f"{'https' if sp.upstream_tls else 'http'}://127.0.0.1:{sp['upstream']}"

    def protocol(self, sp):
        tls = f'\n    tls: {{ ca: {certs()[0]}, server_name: bench.local }}' if sp.upstream_tls else ''
        return tls + (f'\n    protocol: {sp.upstream_protocol}' if sp.upstream_protocol else '')

    def config(self, sp, d):
        cert, key, _ = certs()
        sp.setdefault('adm', port())
        tls = f', tls: {{ certificates: [{{ cert: {cert}, key: {key} }}] }}' if sp.tls else ''
        tag = f'\n    response_headers: {{ set: {{ X-Cfg: "{sp.tag}" }} }}' if sp.tag else ''
        auth = f'\n    auth: {{ forward: {{ url: {self.server(sp)}{sp.auth} }} }}' if sp.auth else ''
        plain = f'\n    flow:{self.flow}' if self.flow else ''
        extra = ''.join(
            f'\n  - name: r{i}\n    match: {{ path_prefix: /r/{i} }}\n    upstream: u{tag}{plain}'
            for i in range(sp.routes or 0)
        )
        text = f"""workers: {sp['cores']}
access_log: {self.log}
admin: {{ listen: 127.0.0.1:{sp['adm']} }}
listeners:
  - {{ name: l, listen: 127.0.0.1:{sp['port']}{tls} }}
upstreams:
  - name: u
    servers: [{{ url: {self.server(sp)} }}]{self.protocol(sp)}
routes:
  - name: all
    match: {{ path_prefix: / }}
    upstream: u{tag}{auth}{self.rules(sp)}{extra}
"""
        with open(d + '/gateway.yaml.new', 'w') as f:
            f.write(text)
        os.rename(d + '/gateway.yaml.new', d + '/gateway.yaml')

    def argv(self, sp, d):
        return [EXE, 'run', '-c', d + '/gateway.yaml']

    def reload(self, inst, sp):
        """The file is replaced, as an editor does it; the gateway notices by itself."""
        sp['adm'] = inst.spec['adm']
        self.config(sp, inst.dir)


ADAPTERS = [
    Flowgate('flowgate'),
    Flowgate('flowgate-3rules', flow=THREE_RULES),
    Flowgate('flowgate-log-3rules', flow=THREE_RULES, log='access.log'),
    Flowgate('flowgate-burst1', least_burst=1),
]
