"""User-space instructions per request, by callgrind: instrumentation is switched on only while a counted
closed-loop load (32 connections, keep-alive, small body) runs. Says nothing of kernel work.
args: see s2_cpu"""

from common import *

a = args(__doc__, 'nginx,flowgate,flowgate-3rules', rounds=1, secs=3)
u = Up()
raw = []
spec, load, _ = variant(a)


class V(Adapter):
    def __init__(s, x):
        s.x = x
        s.name = 'vg-' + x.name
        s.env = x.env

    def config(s, sp, d):
        s.x.config(sp, d)

    def argv(s, sp, d):
        return [
            'valgrind',
            '--tool=callgrind',
            '--instr-atstart=no',
            f'--callgrind-out-file={d}/cg.%p',
            '--combine-dumps=yes',
        ] + s.x.argv(sp, d)

    def stop(s, i):
        i.proc.kill()


def f(p, r):
    i = start(V(a.ad[p]), {'upstream': u.port, 'nomaster': 1, 'mw': False, **spec}, wait=60)
    try:
        lg(i.port, '-c', 32, '-d', 1, *load)
        pid = str(max(i.pids(), key=cpu_ns))
        subprocess.run(
            ['callgrind_control', '-i', 'on', pid], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        n = lg(i.port, '-c', 32, '-d', a.secs, '-w', 0, *load)['total_sent']
        subprocess.run(
            ['callgrind_control', '-i', 'off', pid], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        subprocess.run(['callgrind_control', '-d', pid], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        tot = 0
        fn = ''
        for x in sorted(os.listdir(i.dir)):
            if x.startswith('cg.'):
                for l in open(i.dir + '/' + x, errors='replace'):
                    if l.startswith('totals:') or l.startswith('summary:'):
                        tot = max(tot, int(l.split()[1]))
                        fn = i.dir + '/' + x
        top = subprocess.run(['callgrind_annotate', fn], capture_output=True, text=True).stdout
        top = [re.sub(r'\s+', ' ', l)[:150] for l in top.splitlines() if re.match(r'^\s*[\d,]+ \(', l)][1:16]
        print(p, n, round(tot / n), flush=True)
        [print('   ', t) for t in top]
        return {'n': n, 'instr_per_req': tot / n, 'top': top}
    finally:
        i.stop()


raw = rounds(a.peers, a.rounds, f)
u.stop()
save(
    's5_instr',
    raw,
    [report('s5', a, raw, ['instr_per_req'], 'user-space instructions per request', 'instr_per_req')],
    {},
    a.out,
)
