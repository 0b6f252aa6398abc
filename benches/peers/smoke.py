"""Starts every adapter (plain, tls, limit) and does a few requests: does the peer work here?"""

from lib import *

a = args(__doc__, rounds=1)
u = Up()
for p in a.peers:
    for sp in (
        {},
        {'tls': 1},
        {'h2': 1},
        {'limit': {'rate': 100, 'burst': 10}},
        {'pace': {'rate': 100, 'queue': 50}},
        {'routes': 100, 'tag': 'x1'},
    ):
        need = {'tls': 'tls', 'h2': 'h2c', 'limit': 'limit', 'pace': 'pace', 'routes': 'routes'}
        if any(need.get(k) and need[k] not in a.ad[p].caps for k in sp):
            continue
        try:
            i = start(a.ad[p], {**sp, 'upstream': u.port})
            if sp.get('h2'):
                o = subprocess.run(
                    ['h2load', '-n', '100', '-c', '2', '-m', '4', f'http://127.0.0.1:{i.port}/'],
                    capture_output=True,
                    text=True,
                ).stdout
                r = re.search(r'status codes:.*', o).group(0)
            else:
                r = lg(
                    i.port,
                    '-c',
                    4,
                    '-d',
                    0.5,
                    '-r',
                    500,
                    *(['-s'] if sp.get('tls') else []),
                    *(['-p', '/r/%d/x', '-N', 100] if sp.get('routes') else []),
                )
                r = {k: r[k] for k in ('n', 'ok', 's429', 's503', 's404', 'errors', 'p50', 'p99')}
            x = ''
            if sp.get('tag'):
                s = socket.create_connection(('127.0.0.1', i.port))
                s.sendall(b'GET /r/5/x HTTP/1.1\r\nHost: bench.local\r\nConnection: close\r\n\r\n')
                x = s.recv(4000).decode()
                x = 'tag ok' if re.search(r'(?i)x-cfg: x1', x) else x[:200]
            print(p, dict(sp), r, x, 'rss', i.rss(), 'pids', len(i.pids()))
            i.stop()
        except Exception as e:
            print(p, dict(sp), 'FAIL', str(e)[-600:])
u.stop()
