"""Costs in responses: the proxy's CPU for each MB of a response whose numbers it reads, beside the same responses without such a rule.

The bodies are those that language models send: one JSON document, events, lines, plain and in gzip. The CPU is user and system time
of the proxy's processes; nginx serves the bodies. Usage: ./prio python3 s23_settle.py"""

import gzip, http.client, os, statistics
from lib import RUN, port
from s22_compress import FLOWGATE, cpu, nginx, start

ROUNDS, MEGABYTES, BODY = 5, 1000, 1_000_000
WORDS = 'the gateway counts what a response says it has cost and settles the difference at its end '.split()


def bodies():
    """The bodies of about a megabyte, by type."""
    usage = '"usage":{"prompt_tokens":1200,"completion_tokens":4000,"total_tokens":5200}'
    text = (' '.join(WORDS) + ' ') * (BODY // len(' '.join(WORDS)))
    document = '{"id":"chat-1","choices":[{"index":0,"message":{"role":"assistant","content":"%s"}}],%s}' % (text, usage)

    def chunks(prefix, suffix):
        chunk = '{"id":"chat-1","object":"chat.completion.chunk","created":1764000000,"model":"any","choices":[{"index":0,"delta":{"content":"%s"}}],"usage":null}'
        parts, size, at = [], 0, 0
        while size < BODY:
            part = prefix + chunk % (WORDS[at % len(WORDS)] + ' ') + suffix
            parts.append(part)
            size, at = size + len(part), at + 1
        return ''.join(parts) + prefix + '{"choices":[],%s}' % usage + suffix

    return {
        'json': ('application/json', document),
        'events': ('text/event-stream', chunks('data: ', '\n\n') + 'data: [DONE]\n\n'),
        'lines': ('application/x-ndjson', chunks('', '\n')),
    }


def fetch(at, path, count):
    """Sends `count` requests, and reads their responses to the end."""
    client = http.client.HTTPConnection('127.0.0.1', at, timeout=60)
    length = 0
    for _ in range(count):
        client.request('GET', path)
        answer = client.getresponse()
        length = len(answer.read())
        assert answer.status == 200, answer.status
    return length


def main():
    folder = os.path.join(RUN, 'settle')
    os.makedirs(folder + '/www', exist_ok=True)
    places = []
    for name, (kind, body) in bodies().items():
        plain = body.encode()
        for suffix, content in [('', plain), ('-gzip', gzip.compress(plain, 6))]:
            open(f'{folder}/www/{name}{suffix}', 'wb').write(content)
            encoding = 'add_header Content-Encoding gzip;' if suffix else ''
            places.append(f'location = /{name}{suffix} {{ root {folder}/www; types {{}} default_type {kind}; {encoding} }}')

    up, at, file, started = port(), port(), folder + '/gateway.yaml', []
    rule = '{ name: tokens, algorithm: fixed_window, limit: 1000000000000/30d, cost: { reserve: 1, settle: openai } }'
    open(file, 'w').write(
        f'workers: 1\nlisteners: [{{ name: web, listen: "127.0.0.1:{at}" }}]\n'
        f'upstreams: [{{ name: up, servers: [{{ url: "http://127.0.0.1:{up}" }}] }}]\nroutes:\n'
        '  - { name: read, match: { path_prefix: /read }, upstream: up, rewrite: { strip_prefix: /read },'
        f' request_headers: {{ set: {{ accept-encoding: gzip }} }}, flow: [{rule}] }}\n'
        '  - { name: rest, match: { path_prefix: / }, upstream: up }\n'
    )
    try:
        started.append(nginx(up, folder, ' '.join(places)))
        gateway = start([FLOWGATE, 'run', '-c', file], at)
        started.append(gateway)
        print('| body | CPU in ms for each MB without the rule | with it [min-max] |\n|---|---|---|')
        for name, (_, body) in bodies().items():
            for suffix in ['', '-gzip']:
                count = MEGABYTES * 1_000_000 // len(body)
                spent = {'': [], '/read': []}
                for _ in range(ROUNDS):
                    for prefix, costs in spent.items():
                        before = cpu(gateway.pid)
                        fetch(at, f'{prefix}/{name}{suffix}', count)
                        costs.append((cpu(gateway.pid) - before) / (count * len(body) / 1e6) * 1e3)
                without, read = spent[''], spent['/read']
                print(
                    f'| {name}{suffix} | {statistics.median(without):.2f} | {statistics.median(read):.2f}'
                    f' [{min(read):.2f}-{max(read):.2f}] |',
                    flush=True,
                )
    finally:
        for process in started:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
