"""Drives one instrumented flowgate ($FLOWGATE) through the loads of the other scenarios, each for a second or two, so that
the program records which code is hot. ../../packaging/profile/record starts it."""

from common import *
from s17_hostile import download_chunks, start_upstream, upload_chunks

a = args(__doc__, 'flowgate,flowgate-3rules', secs=2)
u = Up()
BROWSER = ['-B', '-p', '/api/v1/orders/1234567890/items?page=2&sort=asc']
BODY = os.path.join(RUN, 'body')
LARGE = ['-c', 8, '-p', '/s/1048576']

with open(BODY, 'wb') as f:
    f.truncate(1 << 20)


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


def uploads(*x):
    """bodies of 1 MiB, in HTTP/2 or with --h1"""
    command = ['h2load', '-c', '4', '-n', '200', '-d', BODY, *x]
    return lambda i: subprocess.run([*command, f'http://127.0.0.1:{i.port}/'], check=True, capture_output=True)


def chunks(i):
    download_chunks(('127.0.0.1', i.port), 2)
    upload_chunks(('127.0.0.1', i.port), 2)


def through(spec, *loads):
    """the loads through a flowgate whose upstream is another, and its upstream `u`"""
    second = start(a.ad['flowgate'], {'upstream': u.port, 'tls': spec.get('upstream_tls')})
    try:
        one('flowgate', {'upstream': second.port, **spec}, *loads)
    finally:
        second.stop()


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
for spec in ({'upstream_tls': 1}, {'upstream_tls': 1, 'upstream_protocol': 'h1'}, {'upstream_protocol': 'h2'}):
    through(spec, http('-c', 64), http(*LARGE))
one('flowgate', {'upstream': start_upstream()}, uploads(), uploads('--h1'), chunks)
one('flowgate', {'limit': {'rate': 1}}, http('-c', 64), http('-c', 64, *BROWSER))
u.stop()
