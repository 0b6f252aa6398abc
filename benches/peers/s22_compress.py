"""Compression: the ratio, and the CPU for each MB of the plain body, of flowgate's encodings and of nginx's gzip.

The CPU is user and system time of the proxy's processes, less that of the same requests without compression.
Usage: ./prio python3 s22_compress.py [FILE]…   (without files: the reference as Markdown, the schema as JSON)"""

import http.client, os, statistics, subprocess, sys, time
from lib import RUN, port

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
FLOWGATE = os.environ.get('FLOWGATE', os.path.join(ROOT, 'target/release/flowgate'))
TYPES = {'.md': 'text/markdown', '.json': 'application/json', '.html': 'text/html'}
ROUNDS, MEGABYTES = 5, 24


def start(argv, at):
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(500):
        try:
            http.client.HTTPConnection('127.0.0.1', at, timeout=5).request('GET', '/')
            return process
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f'{argv[0]} does not listen on {at}')


def cpu(pid):
    """Seconds of a process and its children that run, by the kernel's ticks."""
    children = open(f'/proc/{pid}/task/{pid}/children').read().split()
    fields = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK') + sum(cpu(int(child)) for child in children)


def ask(at, path, coding, count):
    """Sends `count` requests, and returns the bytes of one response's body."""
    client = http.client.HTTPConnection('127.0.0.1', at, timeout=60)
    for _ in range(count):
        client.request('GET', path, headers={'Accept-Encoding': coding} if coding else {})
        answer = client.getresponse()
        body = answer.read()
        got = answer.getheader('Content-Encoding')
        assert answer.status == 200 and got == (coding or None), (answer.status, got)
    return len(body)


def nginx(at, folder, lines):
    os.makedirs(folder + '/tmp', exist_ok=True)
    temps = ' '.join(f'{k}_temp_path {folder}/tmp;' for k in ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'])
    types = 'types { text/markdown md; application/json json; text/html html; }'
    text = (
        f'daemon off; worker_processes 1; pid {folder}/pid; error_log stderr; events {{}}\n'
        f'http {{ access_log off; {temps} {types} keepalive_requests 1000000; server {{ listen 127.0.0.1:{at}; {lines} }} }}'
    )
    open(folder + '/nginx.conf', 'w').write(text)
    return start(['nginx', '-p', folder, '-c', folder + '/nginx.conf'], at)


def measured(name, at, pid, coding, files):
    for path, plain in files:
        count = max(1, MEGABYTES * 1_000_000 // plain)
        costs = []
        for _ in range(ROUNDS):
            spent = []
            for accepted in (None, coding):
                before = cpu(pid)
                length = ask(at, path, accepted, count)
                spent.append(cpu(pid) - before)
            costs.append((spent[1] - spent[0]) / (count * plain / 1e6) * 1e3)
        ratio, cost = plain / length, statistics.median(costs)
        print(f'| {name} | {path[1:]} | {ratio:.2f} | {cost:.1f} [{min(costs):.1f}-{max(costs):.1f}] |', flush=True)


def main():
    sources = sys.argv[1:] or [ROOT + '/docs/configuration.md', ROOT + '/gateway.schema.json']
    files = [('/' + os.path.basename(path), os.path.getsize(path)) for path in sources]
    folder = os.path.join(RUN, 'compress')
    os.makedirs(folder + '/www', exist_ok=True)
    for path in sources:
        open(folder + '/www/' + os.path.basename(path), 'wb').write(open(path, 'rb').read())

    up, started = port(), []
    try:
        os.makedirs(folder + '/up', exist_ok=True)
        started.append(nginx(up, folder + '/up', f'location / {{ root {folder}/www; }}'))
        print('| | body | ratio | CPU in ms for each MB [min-max] |\n|---|---|---|---|')
        for level in [1, 6]:
            at, own = port(), f'{folder}/gzip{level}'
            os.makedirs(own, exist_ok=True)
            lines = (
                f'gzip on; gzip_comp_level {level}; gzip_types text/markdown application/json; gzip_proxied any;'
                f' location / {{ proxy_pass http://127.0.0.1:{up}; proxy_http_version 1.1; proxy_set_header Connection "";'
                ' proxy_set_header Accept-Encoding ""; }'
            )
            process = nginx(at, own, lines)
            started.append(process)
            measured(f'nginx gzip {level}', at, process.pid, 'gzip', files)

        at, file = port(), folder + '/gateway.yaml'
        open(file, 'w').write(
            f'workers: 1\nlisteners: [{{ name: web, listen: "127.0.0.1:{at}" }}]\n'
            f'upstreams: [{{ name: up, servers: [{{ url: "http://127.0.0.1:{up}" }}] }}]\n'
            'routes: [{ name: all, match: { path_prefix: / }, upstream: up, compress: true,'
            ' request_headers: { remove: accept-encoding } }]\n'
        )
        process = start([FLOWGATE, 'run', '-c', file], at)
        started.append(process)
        for coding in ['gzip', 'br', 'zstd']:
            measured(f'flowgate {coding}', at, process.pid, coding, files)
    finally:
        for process in started:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
