"""What `flowgate top` costs: its share of a core while it shows a gateway with ROUTES routes under load.
extra args: the number of routes (default 100) and the seconds (default 30)"""

import fcntl, pty, termios, threading

from common import *

RATE, CONNECTIONS = 2000, 32

a = args(__doc__, 'flowgate', rounds=3, secs=30)
routes = int(a.extra[0]) if a.extra else 100
u = Up()


def f(peer, _round):
    i = start(a.ad[peer], {'upstream': u.port, 'routes': routes})
    # It draws only in a terminal.
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ['TERM'] = 'xterm-256color'
        exe = a.ad[peer].argv({}, '')[0]
        os.execv(exe, [exe, 'top', '--admin', f'127.0.0.1:{i.spec["adm"]}'])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 120, 0, 0))
    shown = bytearray()
    reading = threading.Thread(target=read, args=(terminal, shown), daemon=True)
    reading.start()
    try:
        lg(i.port, '-c', CONNECTIONS, '-d', 2, '-r', RATE, '-P')
        before, begun = usersys([pid]), time.time()
        lg(i.port, '-c', CONNECTIONS, '-d', a.secs, '-r', RATE, '-P')
        took = time.time() - begun
        cpu = sum(usersys([pid])) - sum(before)
        assert b'passed' in shown, bytes(shown[-500:])
        return {'percent': 100 * cpu / took, 'bytes': len(shown)}
    finally:
        os.kill(pid, 15)
        os.waitpid(pid, 0)
        i.stop()


def read(terminal, shown):
    try:
        while part := os.read(terminal, 65536):
            shown.extend(part)
    except OSError:
        pass


raw = rounds(a.peers, a.rounds, f)
u.stop()
table = report('s20', a, raw, ['percent', 'bytes'], f'flowgate top, {routes} routes', 'percent')
save('s20_top', raw, [table], {'routes': routes, 'rate': RATE}, a.out)
