"""Memory while one large body streams through: a download and an upload of 1 GiB on one connection each.
RSS before, at its highest (sampled every 10 ms) and 1 s after.  extra: MiB (default 1024)"""

from common import *
import threading

a = args(__doc__, 'nginx,haproxy26,flowgate', rounds=3)
SIZE = (int(a.extra[0]) if a.extra else 1024) << 20
CHUNK = bytes(1 << 20)


def head(conn):
    """reads one message's head; returns it and what came after"""
    data = b''
    while b'\r\n\r\n' not in data:
        part = conn.recv(65536)
        if not part:
            raise OSError('closed before the head was whole')
        data += part
    text, rest = data.split(b'\r\n\r\n', 1)
    return text.lower(), rest


def send_body(conn):
    left = SIZE
    while left:
        conn.sendall(CHUNK[:left])
        left -= min(left, len(CHUNK))


def drain(conn, text, rest):
    """reads a body to its end, by length or in chunks; returns the bytes that came"""
    length = re.search(rb'content-length: *(\d+)', text)
    got, tail, buf = len(rest), rest[-5:], bytearray(1 << 20)
    while got < int(length.group(1)) if length else not tail.endswith(b'0\r\n\r\n'):
        n = conn.recv_into(buf)
        if not n:
            raise OSError(f'closed after {got} bytes')
        got, tail = got + n, (tail + bytes(buf[max(0, n - 5) : n]))[-5:]
    return got


def serve(conn):
    try:
        while True:
            text, rest = head(conn)
            if text.startswith(b'post'):
                if b'100-continue' in text:
                    conn.sendall(b'HTTP/1.1 100 Continue\r\n\r\n')
                drain(conn, text, rest)
            if text.startswith(b'get /down'):
                conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % SIZE)
                send_body(conn)
            else:
                conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    except OSError:
        conn.close()


def upstream():
    """an upstream that takes and gives large bodies, in this process"""
    s = socket.create_server(('127.0.0.1', 0))

    def accept():
        while True:
            threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return s.getsockname()[1]


def ask(p, line, body):
    with socket.create_connection(('127.0.0.1', p), 60) as c:
        length = b'Content-Length: %d\r\n' % SIZE if body else b''
        c.sendall(line + b' HTTP/1.1\r\nHost: bench.local\r\n' + length + b'\r\n')
        if body:
            send_body(c)
        text, rest = head(c)
        assert b' 200 ' in text, text
        return drain(c, text, rest)


def f(p, r):
    out = []
    for way, line in (('download', b'GET /down'), ('upload', b'POST /up')):
        i = start(a.ad[p], {'upstream': UP, 'bodies': True})
        try:
            ask(i.port, b'GET /', False)
            time.sleep(0.3)
            before, peak, done = i.rss(), [0], threading.Event()

            def watch():
                while not done.wait(0.01):
                    peak[0] = max(peak[0], i.rss())

            w = threading.Thread(target=watch)
            w.start()
            t0 = time.time()
            try:
                got = ask(i.port, line, way == 'upload')
            finally:
                done.set()
                w.join()
            took = time.time() - t0
            if way == 'download' and got != SIZE:
                raise RuntimeError(f'{got} bytes came of {SIZE}')
            time.sleep(1)
            out.append(
                {
                    'way': way,
                    'rss_before_mib': before / 1024,
                    'rss_peak_mib': peak[0] / 1024,
                    'growth_mib': (peak[0] - before) / 1024,
                    'after_mib': i.rss() / 1024,
                    'mb_s': SIZE / 1e6 / took,
                }
            )
        finally:
            i.stop()
    return out


UP = upstream()
raw = rounds(a.peers, a.rounds, f)
cols = ['rss_before_mib', 'rss_peak_mib', 'growth_mib', 'after_mib', 'mb_s']
T = [
    report('s13', a, [x for x in raw if x.get('way') == w], cols, f'{w} of {SIZE >> 20} MiB', 'growth_mib')
    for w in ('download', 'upload')
]
save('s13_body', raw, T, {'bytes': SIZE}, a.out)
