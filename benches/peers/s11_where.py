"""Where the CPU goes: syscalls per request (strace -c -f for 2 s at 2000/s and closed loop), perf record
(cpu-clock) split. extra: any of strace perf"""

from common import *

a = args(__doc__, DEFAULT_PEERS, rounds=1)
u = Up()
what = a.extra or ['strace', 'perf']
raw = []
for p in a.peers:
    i = start(a.ad[p], {'upstream': u.port})
    try:
        lg(i.port, '-c', 32, '-d', 0.5)
        pid = max(i.pids(), key=cpu_ns)
        if 'strace' in what:
            for mode, ga in (('2000/s', ['-r', 2000, '-P']), ('closed', [])):
                f = RUN + '/st'
                st = subprocess.Popen(
                    ['strace', '-f', '-c', '-U', 'calls,errors,name', '-o', f, '-p', str(pid)],
                    stderr=subprocess.DEVNULL,
                )
                time.sleep(0.6)
                r = lg(i.port, '-c', 32, '-d', 2, *ga)
                os.kill(st.pid, signal.SIGINT)
                st.wait()
                n = r['total_sent']
                tot = {}
                for l in open(f):
                    w = l.split()
                    if len(w) >= 2 and w[0].isdigit() and w[-1] != 'total':
                        tot[w[-1]] = (int(w[0]), int(w[1]) if len(w) > 2 and w[1].isdigit() else 0)
                d = {
                    k: round(v[0] / n, 3)
                    for k, v in sorted(tot.items(), key=lambda x: -x[1][0])
                    if v[0] / n > 0.005
                }
                er = {k: round(v[1] / n, 3) for k, v in tot.items() if v[1] / n > 0.005}
                print(p, mode, 'n', n, 'total', round(sum(d.values()), 2), d, 'errors', er)
                raw.append({'peer': p, 'mode': mode, 'calls': d, 'errors': er, 'n': n})
                sys.stdout.flush()
        if 'perf' in what:
            f = RUN + '/perf-' + p
            g = lg_bg(i.port, '-c', 32, '-d', 4, '-r', 5000, '-P')
            time.sleep(0.5)
            subprocess.run(
                [
                    'perf',
                    'record',
                    '-q',
                    '-e',
                    'cpu-clock',
                    '-F',
                    '2500',
                    '-g',
                    '-o',
                    f,
                    '-p',
                    str(pid),
                    '--',
                    'sleep',
                    '3',
                ],
                stderr=subprocess.DEVNULL,
            )
            g.wait()
            o = subprocess.run(
                ['perf', 'report', '-i', f, '--no-children', '-g', 'none', '--sort', 'dso', '--stdio', '-q'],
                capture_output=True,
                text=True,
            ).stdout
            print(p, 'dso', ' '.join(o.split()[:24]))
            o = subprocess.run(
                ['perf', 'report', '-i', f, '--no-children', '-g', 'none', '--sort', 'sym', '--stdio', '-q'],
                capture_output=True,
                text=True,
            ).stdout
            print('\n'.join(o.strip().splitlines()[:14]))
            raw.append({'peer': p, 'perf': o[:6000]})
            sys.stdout.flush()
    finally:
        i.stop()
u.stop()
save('s11_where' + ('' if len(what) > 1 else '_' + what[0]), raw, [], {}, a.out)
