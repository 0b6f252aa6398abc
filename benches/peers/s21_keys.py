"""A list of the fullest keys of a rule with 1,000,000 live keys (or as many as the first extra arg says): how long
`/keys` takes, and the latency of requests at 2,000/s without lists and with one every three seconds. A list is made
anew if 50 times as long as it took has passed. The second extra arg is the rule (`limit: 10/1d`)"""

import urllib.request

from adapters.flowgate import Flowgate
from common import *

RATE, CONNECTIONS, LISTS = 2000, 32, 10

keyed = Flowgate('keyed')
a = args(__doc__, 'keyed', rounds=3, secs=3 * LISTS, more=[keyed])
keys = int(a.extra[0]) if a.extra else 1_000_000
rule = a.extra[1] if len(a.extra) > 1 else 'limit: 10/1d'
keyed.flow = f"\n      - {{ name: client, {rule}, key: 'header:x-key', max_keys: 1100000 }}"
u = Up()


def fill(to):
    """sends one request for each key, many at once"""
    with socket.create_connection(('127.0.0.1', to)) as s:
        for first in range(0, keys, 200):
            some = range(first, min(first + 200, keys))
            s.sendall(b''.join(b'GET / HTTP/1.1\r\nHost: a\r\nX-Key: k%d\r\n\r\n' % key for key in some))
            heads = b''
            while heads.count(b'HTTP/1.1 200 ') < len(some):
                heads += s.recv(1 << 20)


def live(i):
    """how many keys the gateway knows"""
    page = urllib.request.urlopen(f'http://127.0.0.1:{i.spec["adm"]}/metrics', timeout=60).read().decode()
    found = re.search(r'(?m)^flowgate_flow_keys\{[^}]*rule="client"[^}]*\} (\S+)$', page)
    return float(found.group(1)) if found else 0


def load(i):
    return lg_bg(i.port, '-c', CONNECTIONS, '-d', a.secs, '-r', RATE, '-w', 0)


def ended(load):
    return json.loads(load.communicate()[0].strip().splitlines()[-1])


def f(peer, _round):
    i = start(a.ad[peer], {'upstream': u.port})
    try:
        # Each key has been used, and needs hours until it has its whole budget again.
        fill(i.port)
        page = f'http://127.0.0.1:{i.spec["adm"]}/keys?route=all&rule=client&top=20'
        alone = ended(load(i))
        loading, took = load(i), []
        for _ in range(LISTS):
            time.sleep(a.secs / LISTS - 0.3)
            begun = time.perf_counter()
            text = urllib.request.urlopen(page, timeout=60).read()
            took.append(1000 * (time.perf_counter() - begun))
        with_lists = ended(loading)
        assert len(json.loads(text)), text
        return {
            'keys': live(i),
            'list_ms': statistics.median(took),
            'list_ms_max': max(took),
            'p99_us': alone['p99'],
            'p99_us_with_lists': with_lists['p99'],
            'p999_us': alone['p999'],
            'p999_us_with_lists': with_lists['p999'],
        }
    finally:
        i.stop()


raw = rounds(a.peers, a.rounds, f)
u.stop()
columns = ['keys', 'list_ms', 'list_ms_max', 'p99_us', 'p99_us_with_lists', 'p999_us', 'p999_us_with_lists']
table = report('s21', a, raw, columns, f'{keys} live keys', 'list_ms')
save('s21_keys', raw, [table], {'keys': keys, 'rate': RATE}, a.out)
