"""Drives one instrumented flowgate ($FLOWGATE) through the loads of the other scenarios, each for a second or two, so that
the program records which code is hot. ../../packaging/profile/record starts it."""

from common import *

a = args(__doc__, 'flowgate,flowgate-3rules', secs=2)
u = Up()
BROWSER = ['-B', '-p', '/api/v1/orders/1234567890/items?page=2&sort=asc']
LARGE = ['-c', 8, '-p', '/s/1048576']


def one(p, spec, *loads):
    i = start(a.ad[p], {'upstream': u.port, **spec})
    try:
        for load in loads:
            load(i)
    finally:
        i.stop()


def http(*x):
    return lambda i: lg(i.port, '-d', a.secs, *x)


def http2(i):
    command = ['h2load', '-c', '10', '-m', '100', '-D', str(a.secs), f'http://127.0.0.1:{i.port}/']
    subprocess.run(command, check=True, capture_output=True)


def handshakes(*x):
    options = ['-c', '4', '-d', str(a.secs / 2), '-C', str(LOAD_CORE), *x]
    return lambda i: subprocess.run(
        [TOOLS + '/tlshs', f'127.0.0.1:{i.port}', *options], check=True, capture_output=True
    )


for p in a.peers:
    one(
        p,
        {},
        http('-c', 64),
        http('-c', 64, *BROWSER),
        http('-c', 64, '-r', 2000, '-P'),
        http('-c', 32, '-n'),
        http('-c', 8, '-p', '/s/65536'),
        http(*LARGE),
    )
    one(p, {'h2': 1}, http2)
    one(p, {'tls': 1}, handshakes(), handshakes('-r'), http('-c', 32, '-s'), http('-s', *LARGE))
one('flowgate', {'limit': {'rate': 1}}, http('-c', 64), http('-c', 64, *BROWSER))
u.stop()
