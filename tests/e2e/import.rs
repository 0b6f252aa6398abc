//! An imported configuration decides as nginx itself does with the original.

use crate::{
    common::{
        Gateway, eventually,
        http::{Answer, Client, head, raw},
        upstream::Script,
    },
    port::free_port,
};
use std::{
    fs, io,
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

/// The slowest rate of nginx is a request in 62.5 s. What takes longer than this is tried again with
/// other keys, because nginx and flowgate may have given back something by then.
const SHORT: Duration = Duration::from_secs(40);

/// What the servers share.
const COMMON: &str = r#"
    set_real_ip_from 127.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;
    geo $limited { default 1; 10.0.0.0/8 0; 192.168.7.1 0; }
    map $limited $limit_key { 0 ""; 1 $binary_remote_addr; }
    limit_req_zone $binary_remote_addr zone=addr:1m rate=1r/m;
    limit_req_zone $limit_key zone=some:1m rate=1r/m;
    limit_req_zone $http_x_tenant zone=tenant:1m rate=1r/m;
    limit_req_zone $arg_user zone=arg:1m rate=1r/m;
    limit_req_zone $uri zone=uri:1m rate=1r/m;
    limit_req_zone $http_x_one zone=one:1m rate=1r/m;
    limit_req_zone $http_x_two zone=two:1m rate=1r/m;
    limit_req_zone $http_x_paced zone=paced:1m rate=1r/m;
    limit_req_zone $http_x_split zone=split:1m rate=1r/m;
    limit_req_zone $http_x_dry zone=dry:1m rate=1r/m;
    limit_req_zone $http_x_shared zone=shared:1m rate=1r/m;
    limit_conn_zone $http_x_held zone=held:1m;
    limit_req_status 429;"#;

const SERVERS: &str = r#"
    server {
        listen 127.0.0.1:PORT;
        location / { proxy_pass http://UP; proxy_redirect off; }
        location = /exact { return 200 exact; }
        location /plain { return 201; }
        location /api/ { proxy_pass http://UP/v1/; proxy_redirect off; }
        location ^~ /static/ { return 200 static; }
        location ~* \.(jpg|png)$ { return 200 image; }
        location ~ ^/v[0-9]+/ { return 200 'version $request_method'; }
        location /deep/ { proxy_pass http://UP; proxy_redirect off; proxy_set_header Host $http_host; }
        location /deep/er/ { return 403; }
        location /moved/ { return 302 https://other.test$request_uri; }
        location /here { return 307 /there; }
        location /hidden/ { internal; }
        location ~ /\.ht { deny all; }
        location /office/ { allow 10.0.0.0/8; deny all; proxy_pass http://UP; proxy_redirect off; }
        location /outside/ { deny 10.1.0.0/16; proxy_pass http://UP; proxy_redirect off; }
        location /inner/ { deny 10.1.0.0/16; allow 10.0.0.0/8; deny all; proxy_pass http://UP; proxy_redirect off; }
        location /addr/ { limit_req zone=addr burst=2 nodelay; proxy_pass http://UP; proxy_redirect off; }
        location /some/ { limit_req zone=some; proxy_pass http://UP; proxy_redirect off; }
        location /tenant/ { limit_req zone=tenant; proxy_pass http://UP; proxy_redirect off; }
        location /arg/ { limit_req zone=arg burst=1 nodelay; limit_req_status 599; proxy_pass http://UP; proxy_redirect off; }
        location /uri/ { limit_req zone=uri burst=1 nodelay; proxy_pass http://UP; proxy_redirect off; }
        location /both/ { limit_req zone=one burst=5 nodelay; limit_req zone=two burst=1 nodelay; proxy_pass http://UP; proxy_redirect off; }
        location /paced/ { limit_req zone=paced burst=2; proxy_pass http://UP; proxy_redirect off; }
        location /split/ { limit_req zone=split burst=3 delay=1; proxy_pass http://UP; proxy_redirect off; }
        location /dry/ { limit_req zone=dry; limit_req_dry_run on; proxy_pass http://UP; proxy_redirect off; }
        location /held/ { limit_conn held 2; proxy_pass http://UP; proxy_redirect off; }
        location /held/other/ { limit_conn held 2; proxy_pass http://UP; proxy_redirect off; }
        location /shared/a/ { limit_req zone=shared burst=2 nodelay; proxy_pass http://UP; proxy_redirect off; }
        location /shared/b/ { limit_req zone=shared burst=2 nodelay; proxy_pass http://UP; proxy_redirect off; }
        location /small/ { client_max_body_size 10; proxy_pass http://UP; proxy_redirect off; }
    }
    server { listen 127.0.0.1:PORT; server_name a.test .b.test; return 200 first; }
    server {
        listen 127.0.0.1:PORT; server_name *.a.test deep.x.b.test;
        location / { return 200 second; }
        location /x/ { return 404; }
    }
    server {
        listen 127.0.0.1:PORT; server_name segments.test;
        location / { return 410; }
        location /a/ { proxy_pass http://UP; proxy_redirect off; }
        location /a/b/ { proxy_pass http://UP/; proxy_redirect off; }
        location = /c { proxy_pass http://UP/d; proxy_redirect off; }
    }
    server { listen 127.0.0.1:PORT; server_name some.test; location /only/ { return 200 only; } }
    server {
        listen 127.0.0.1:PORT; server_name nested.test;
        location / {
            proxy_pass http://UP; proxy_redirect off;
            location /api/ {
                proxy_pass http://UP/v1/; proxy_redirect off;
                location = /api/x { return 200 exact; }
                location /api/deep/ { return 200 deep; }
            }
            location = /exact { return 200 exact; }
        }
        location /a/ { return 201; location /a/b/c { return 202; } location /a/x { return 203; } }
        location /a/b { return 204; }
        location /shut/ { internal; location /shut/open/ { return 200 open; } }
        location /office/ {
            allow 10.0.0.0/8; deny all; proxy_pass http://UP; proxy_redirect off;
            location /office/x/ { proxy_pass http://UP; proxy_redirect off; }
        }
    }
    server {
        listen 127.0.0.1:PORT; server_name mixed.test;
        location / { return 404; location /x/ { return 200 x; } }
        location /a/ {
            return 200 a;
            location /a/b/ { return 200 b; }
            location ^~ /a/x { return 200 x; }
            location = /a/c.jpg { return 200 exact; }
        }
        location ^~ /static/ { return 200 static; location /static/deep/ { return 200 deep; } }
        location ~ \.jpg$ { return 200 image; }
    }
    server {
        listen 127.0.0.1:PORT; server_name within.test;
        location / { return 200 root; location ~ \.deny$ { deny all; proxy_pass http://UP; proxy_redirect off; } }
        location /up/ {
            proxy_pass http://UP; proxy_redirect off;
            location ~ \.php$ { deny all; }
            location ~* ^/up/Img/(a|b) { return 200 img; }
            location ~ /\.ht { return 403; }
            location /up/in/ { return 200 in; location ~ x$ { return 200 inx; } }
        }
        location /up/long/ { return 200 long; }
    }
    server {
        listen 127.0.0.1:PORT; server_name levels.test;
        location / { return 200 root; }
        location ^~ /s/ { return 200 s; location ~ \.php$ { return 403; } }
        location /s/t/ { return 200 t; }
        location /p/ {
            return 200 p;
            location ~ ^/p/x { return 200 px; }
            location /p/q/ { return 200 q; location ~ \.php$ { return 202; } }
        }
        location ~ \.php$ { return 200 php; }
        location ~ ^/p/.*y { return 200 y; }
    }
    server {
        listen 127.0.0.1:PORT; server_name shut.test;
        location / { proxy_pass http://UP; proxy_redirect off; }
        location ~ /\.(?!well-known) { deny all; }
        location ~ ^/admin/(?!open|free$) { allow 10.0.0.0/8; deny all; proxy_pass http://UP; proxy_redirect off; }
        location ~ ^((?!keep).)*\.jar$ { return 404; }
        location ~ ^/closed/(?!a+) { deny all; }
        location ~ (?<=z)\.txt$ { return 200 open; }
        location /p/ { proxy_pass http://UP; proxy_redirect off; location ~ [^x]/secret { return 403; } }
        location ~ \.cgi$ { proxy_pass http://UP; location ~ admin { deny all; } }
        location /if/ { if ($arg_x) { return 403; } proxy_pass http://UP; proxy_redirect off; }
        rewrite ^/parts/(.*)$ /$1 permanent;
    }
    server {
        listen 127.0.0.1:PORT; server_name host.test www.host.test *.w.test;
        if ($host = www.host.test) { return 301 https://host.test$request_uri; }
        if ($host = 'x.w.test') { return 302 /there; }
        return 404;
    }
    server {
        listen 127.0.0.1:PORT; server_name moved.test www.moved.test;
        rewrite ^/exact$ /here permanent;
        if ($host = www.moved.test) { return 301 https://moved.test$request_uri; }
        rewrite ^/plain https://other.test/? redirect;
        rewrite /deep/er/ https://$host/?a=1?;
        location / { proxy_pass http://UP; proxy_redirect off; rewrite ^/api$ /v1 redirect; rewrite ^/x/$ /y permanent; }
        location = /plain/x { return 200; }
        location = /only { return 200; }
        location /deep { return 200 deep; }
        location /a/ { rewrite ^/a/b/ /b permanent; return 200 a; rewrite ^/a/x /never permanent; }
        location ^~ /static { return 200 static; }
        location ~ \.jpg$ { return 200 image; }
    }
    server { listen 127.0.0.1:PORT; server_name tail.* tail.name.*; return 200 tail; }
    server {
        listen 127.0.0.1:PORT; server_name vars.test;
        proxy_redirect off;
        location /flag/ {
            set $flag A;
            if ($http_x_one = on) { set $flag "${flag}B"; }
            if ($http_x_two ~ ^b) { set $flag "${flag}C"; }
            if ($request_method = POST) { set $flag "${flag}D"; }
            if ($flag = AB) { return 403; }
            if ($flag ~ ^AB?C) { return 410; }
            proxy_pass http://UP;
        }
        location /bots/ {
            set $bot 0;
            if ($http_user_agent ~* crawler) { set $bot 1; }
            if ($http_user_agent ~* spider) { set $bot 1; }
            if ($http_user_agent = "") { set $bot 1; }
            if ($http_x_key = secret) { set $bot 0; }
            if ($bot) { return 403; }
            proxy_pass http://UP;
        }
        location /up/ {
            set $up UP;
            set $own here.test;
            if ($http_accept = text/x) { set $own x.test; }
            if ($request_method = DELETE) { set $own deleted.test; }
            proxy_set_header Host $own;
            proxy_pass http://$up;
        }
        location /within/ {
            proxy_set_header Host usual.test;
            if ($cookie_old ~ ^y) { return 302 /old; }
            if ($arg_comp = core) { proxy_pass http://UP; rewrite ^/within/(.*)$ /core/$1 break; }
            if ($http_x_id) { rewrite ^/within/(.*)$ /id?of=$1 break; }
            proxy_pass http://UP;
        }
        location = /added { set $more 7; proxy_pass http://UP/added?a=$more&$args; }
        location /cors/ {
            if ($request_method = OPTIONS) {
                add_header Access-Control-Allow-Methods "GET, OPTIONS"; return 204;
            }
            if ($http_origin ~ ^https://.*\.vars\.test$) { add_header Access-Control-Allow-Origin $http_origin; }
            proxy_pass http://UP;
        }
        location /wide/ {
            if ($request_method = 'OPTIONS') {
                add_header 'Access-Control-Allow-Origin' '*';
                add_header 'Access-Control-Allow-Methods' 'GET, POST, OPTIONS';
                add_header 'Access-Control-Allow-Headers' 'DNT,User-Agent,X-Requested-With';
                add_header 'Access-Control-Max-Age' 1728000;
                add_header 'Content-Type' 'text/plain; charset=utf-8';
                add_header 'Content-Length' 0;
                return 204;
            }
            if ($request_method = 'POST') {
                add_header 'Access-Control-Allow-Origin' '*' always;
                add_header 'Access-Control-Expose-Headers' 'Content-Length,Content-Range' always;
            }
            if ($request_method = 'GET') { add_header 'Access-Control-Allow-Origin' '*' always; }
            proxy_pass http://UP;
        }
        location /query/ {
            set $block 0;
            if ($query_string ~ "union.*select") { set $block 1; }
            if ($query_string ~* "proc/self|<script") { set $block 1; }
            if ($args ~ "^$") { set $block 2; }
            if ($block = 1) { return 403; }
            if ($block = 2) { return 410; }
            proxy_pass http://UP;
        }
        location /break/ { proxy_pass http://UP; if ($http_x_key = secret) { break; } return 403; }
    }"#;

/// Paths, of which each server has a location for some.
const PATHS: &[&str] = &[
    "/",
    "/x",
    "/exact",
    "/exact/",
    "/exact?x=1",
    "/plain",
    "/plainer",
    "/plain/x",
    "/api",
    "/api?x=1",
    "/api/",
    "/api/x?y=1",
    "/apix",
    "/static/a.jpg",
    "/static/",
    "/static",
    "/a.jpg",
    "/A.JPG",
    "/x.png/y",
    "/v1/",
    "/v1",
    "/v12/a.png",
    "/api/a.png",
    "/deep",
    "/deep/",
    "/deep/x",
    "/deep/er",
    "/deep/er/x",
    "/deep/er/x.jpg",
    "/moved/x?a=b",
    "/moved",
    "/here",
    "/heretic",
    "/hidden/",
    "/.htaccess",
    "/a/.ht/b",
    "/a",
    "/a/",
    "/a/x",
    "/a/b",
    "/a/b/",
    "/a/b/c",
    "/c",
    "/c/",
    "/only",
    "/only/",
    "/only/x",
    "/api/x",
    "/api/deep/",
    "/api/deep/x.jpg",
    "/a/x.jpg",
    "/a/c.jpg",
    "/a/b/c.jpg",
    "/static/deep/a.jpg",
    "/x/",
    "/x/a.jpg",
    "/shut/open/",
    "/office/x",
    "/office/x/",
];

/// Paths of the servers with regular expressions.
const REGEX_PATHS: &[&str] = &[
    "/",
    "/a.deny",
    "/up/a.deny",
    "/up/",
    "/up/a.php",
    "/up/.ht",
    "/up/x/.htaccess",
    "/up/img/a",
    "/up/IMG/b/c",
    "/UP/img/a",
    "/up/img/c",
    "/up/in/",
    "/up/in/x",
    "/up/in/a.php",
    "/up/in/.ht/x",
    "/up/long/a.php",
    "/up/long/x",
    "/s/",
    "/s/a.php",
    "/s/t/",
    "/s/t/a.php",
    "/p/",
    "/p/x",
    "/p/x.php",
    "/p/q/",
    "/p/q/y",
    "/p/q/y.php",
    "/p/yy",
    "/p/a.php",
    "/a.php",
];

/// Paths of a server whose regular expressions do not convert.
const SHUT_PATHS: &[&str] = &[
    "/.git/config",
    "/a/.env",
    "/.well-known/x",
    "/admin/",
    "/admin/x",
    "/admin/open",
    "/p/a/secret",
    "/p/x/secret",
    "/admin.cgi",
    "/x/admin/a.cgi",
    "/b.cgi",
    "/if/?x=1",
    "/%2egit/x",
    "/closed/b",
];

/// Paths of the same server whose regular expressions have an equal one without a look-ahead.
const LOOK_AHEAD_PATHS: &[&str] = &[
    "/.git/config",
    "/.well-known",
    "/.well-known/x",
    "/.well-know",
    "/.wellknown/x",
    "/.well-known/.git",
    "/.",
    "/admin/",
    "/admin/x",
    "/admin/open",
    "/admin/opened/x",
    "/admin/ope",
    "/admin/free",
    "/admin/free/x",
    "/x.jar",
    "/keep/x.jar",
    "/x/keep.jar",
    "/kkeep.jar",
    "/kekep.jar",
];

/// Spellings, whose upstream may see what was written or what is meant.
const SPELLINGS: &[&str] =
    &["/%61pi/x", "//api//x", "/a/./b", "/static%2ejpg", "/api%3Fx", "/%76%31/", "/plain%20"];

const HOSTS: &[&str] = &[
    "none.test",
    "a.test",
    "A.Test",
    "x.a.test",
    "x.y.a.test",
    "b.test",
    "x.b.test",
    "deep.x.b.test",
    "segments.test",
    "some.test",
    "nested.test",
    "mixed.test",
    "within.test",
    "levels.test",
    "host.test",
    "www.host.test",
    "x.w.test",
    "y.w.test",
    "moved.test",
    "www.moved.test",
    "127.0.0.1",
    "tail.test",
    "tail.x.test",
    "tail.name.test",
    "tail",
    "vars.test",
];

pub(crate) struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// nginx with a configuration, and flowgate with what was imported of it.
pub(crate) struct Pair {
    pub nginx: SocketAddr,
    pub gateway: SocketAddr,
    _processes: (Nginx, Gateway),
}

/// Starts both. `expected` are the lines of the report without the name of the file.
fn pair(upstream: SocketAddr, expected: &[&str]) -> Pair {
    pair_of(&format!("{COMMON}{SERVERS}"), upstream, expected)
}

/// The same with the directives of `http`, in which `PORT` and `UP` are the port and the upstream.
pub(crate) fn pair_of(http: &str, upstream: SocketAddr, expected: &[&str]) -> Pair {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().display().to_string();
    let port = free_port();
    let http = http.replace("PORT", &port.to_string()).replace("UP", &upstream.to_string());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {path}/{name}; "));
    // Main and temporary paths are for nginx alone.
    let own =
        format!("daemon off; master_process off; pid {path}/pid; error_log stderr;\nevents {{}}\n");
    fs::write(
        folder.path().join("nginx.conf"),
        format!(
            "{own}http {{ access_log off; client_body_buffer_size 2m; {} include http.conf; }}",
            temporary.concat()
        ),
    )
    .expect("written");
    fs::write(folder.path().join("http.conf"), http).expect("written");
    let child = Command::new("nginx")
        .args(["-e", "stderr", "-p", &path, "-c", "nginx.conf"])
        .stdin(Stdio::null())
        .spawn()
        .expect("nginx is installed");
    let process = Nginx(child);
    let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .arg("import")
        .arg(folder.path().join("http.conf"))
        .output()
        .expect("it runs");
    let lines = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(if expected.is_empty() { 0 } else { 3 }), "{lines}");
    let lines: Vec<_> = lines
        .lines()
        .filter_map(|line| line.split_once("http.conf:").map(|(_, rest)| rest))
        .collect();
    for expected in expected {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:#?}");
    }
    let yaml = String::from_utf8(output.stdout).expect("text");
    let listen = format!("listen: 127.0.0.1:{port}\n");
    assert!(yaml.contains(&listen), "{yaml}");
    let yaml = yaml.replace(&listen, "listen: 127.0.0.1:0\n");
    let gateway = Gateway::start(&yaml);
    let nginx = SocketAddr::from(([127, 0, 0, 1], port));
    eventually("nginx listens", || TcpStream::connect(nginx).ok());
    let scheme = if yaml.contains("tls:") { "https" } else { "http" };
    let address = gateway.address(&format!("{scheme}-127.0.0.1:{port}"));
    Pair { nginx, gateway: address, _processes: (process, gateway) }
}

/// An upstream that answers with the path and the host that it was asked for. It holds requests
/// for `/held/` until they are released.
fn upstream(held: Arc<(Mutex<Held>, Condvar)>) -> Script {
    Script::answering(move |request| {
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        if path.starts_with("/held/") {
            let (state, changed) = &*held;
            let mut state = state.lock().expect("not poisoned");
            state.waiting += 1;
            changed.notify_all();
            while !state.is_released {
                state = changed.wait(state).expect("not poisoned");
            }
        }
        let host = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let body = format!("{path} of {}", host.map_or("", |(_, value)| value));
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
    })
}

#[derive(Default)]
struct Held {
    waiting: usize,
    is_released: bool,
}

/// What of an answer must be equal: the status, where it leads, and what the upstream or the file
/// says.
fn essence(answer: &Answer) -> (u16, Option<String>, String) {
    let location = answer.header("location").map(|url| {
        // nginx writes its own address before a path.
        let own = url.strip_prefix("http://").and_then(|rest| rest.find('/').map(|at| &rest[at..]));
        own.unwrap_or(url).to_owned()
    });
    // Errors have pages of their own.
    let body = if answer.status < 300 { answer.text() } else { String::new() };
    (answer.status, location, body)
}

fn ask(address: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let all: Vec<_> = fields.iter().copied().chain([("Connection", "close")]).collect();
    raw(address, head(method, path, &all)).unwrap_or_else(|| panic!("no answer to {path}"))
}

#[test]
fn an_imported_file_decides_as_nginx_does() {
    let held = Arc::default();
    let upstream = upstream(Arc::clone(&held));
    let pair = pair(
        upstream.address,
        &[
            "limit_req: rejects as nginx does, but holds nothing back",
            "location: another location than the surrounding one matches its paths",
            "all paths that match `/closed/.*` get 403",
            "; there is no route for it",
            "all paths that match `/p/.*` get 403",
            "location: it keeps clients out. The route around it is closed",
            "location: a location nested in an exact one or a regular expression does not become a route",
            "if: the case of `x` matters here, and its value is decoded",
            "rewrite: see `rewrite` and `redirect` of a route",
        ],
    );
    locations_and_servers(&pair);
    shut(&pair);
    variables(&pair);
    clients(&pair);
    bodies(&pair);
    keys(&pair);
    waits(&pair);
    in_flight(&pair, &held);
}

fn locations_and_servers(pair: &Pair) {
    for host in HOSTS {
        for path in PATHS.iter().chain(REGEX_PATHS).chain(SPELLINGS) {
            let fields = [("Host", *host)];
            let expected = essence(&ask(pair.nginx, "GET", path, &fields));
            let found = essence(&ask(pair.gateway, "GET", path, &fields));
            if SPELLINGS.contains(path) {
                assert_eq!(found.0, expected.0, "{host}{path}");
            } else {
                assert_eq!(found, expected, "{host}{path}");
            }
        }
    }
    let posted = |address| essence(&ask(address, "POST", "/v2/", &[("Content-Length", "0")]));
    assert_eq!(posted(pair.gateway), posted(pair.nginx));
}

/// What nginx keeps out, the gateway keeps out too; what has no such location passes.
fn shut(pair: &Pair) {
    let fields = [("Host", "shut.test"), ("X-Forwarded-For", "192.0.2.1")];
    for path in SHUT_PATHS {
        let [found, expected] =
            [pair.gateway, pair.nginx].map(|address| ask(address, "GET", path, &fields).status);
        assert!(expected != 403 || found == 403, "{path}: {found}");
    }
    for path in LOOK_AHEAD_PATHS {
        let [found, expected] =
            [pair.gateway, pair.nginx].map(|address| ask(address, "GET", path, &fields).status);
        assert_eq!(found, expected, "{path}");
    }
    for path in ["/parts/x", "/parts/x/y?z=1", "/parts/"] {
        let [found, expected] =
            [pair.gateway, pair.nginx].map(|address| essence(&ask(address, "GET", path, &fields)));
        assert_eq!(found, expected, "{path}");
    }
    for path in ["/", "/a/b", "/zz.txt", "/administration"] {
        assert_eq!(ask(pair.gateway, "GET", path, &fields).status, 200, "{path}");
    }
}

/// Requests to the server whose locations have variables: a path, and header fields.
const VARIABLES: &[(&str, &[(&str, &str)])] = &[
    ("/flag/", &[]),
    ("/flag/", &[("X-One", "on")]),
    ("/flag/", &[("X-Two", "b")]),
    ("/flag/", &[("X-One", "on"), ("X-Two", "bb")]),
    ("/flag/", &[("X-One", "off"), ("X-Two", "a")]),
    ("/bots/", &[("User-Agent", "a crawler")]),
    ("/bots/", &[("User-Agent", "a Spider, a Crawler")]),
    ("/bots/", &[("User-Agent", "a browser")]),
    ("/bots/", &[("User-Agent", "")]),
    ("/bots/", &[]),
    ("/bots/", &[("User-Agent", "spider"), ("X-Key", "secret")]),
    ("/bots/", &[("User-Agent", "browser"), ("X-Key", "secret")]),
    ("/up/", &[]),
    ("/up/x", &[("Accept", "text/x")]),
    ("/up/x", &[("Accept", "text/y")]),
    ("/within/x", &[]),
    ("/within/x?comp=core", &[]),
    ("/within/x?comp=core&y=1", &[("Cookie", "old=yes")]),
    ("/within/x", &[("Cookie", "a=1; old=y; b=2")]),
    ("/within/x", &[("Cookie", "old=no; new=y")]),
    ("/within/a/b", &[("X-Id", "1")]),
    ("/within/a?b=c", &[("X-Id", "1")]),
    ("/added?b=c", &[]),
    ("/cors/", &[("Origin", "https://a.vars.test")]),
    ("/cors/", &[("Origin", "https://vars.other.test")]),
    ("/wide/", &[("Origin", "https://a.test"), ("Access-Control-Request-Method", "PUT")]),
    ("/query/", &[]),
    ("/query/?", &[]),
    ("/query/?a=union+all+select", &[]),
    ("/query/?a=%75nion+select", &[]),
    ("/query/?a=/Proc/self/x", &[]),
    ("/query/?b=c&d", &[]),
    ("/break/", &[]),
    ("/break/", &[("X-Key", "secret")]),
    ("/other", &[]),
];

fn variables(pair: &Pair) {
    for (path, fields) in VARIABLES {
        for method in ["GET", "POST", "OPTIONS", "DELETE"] {
            let own = [("Host", "vars.test"), ("Content-Length", "0")];
            let fields: Vec<_> = own.iter().chain(*fields).copied().collect();
            let [found, expected] = [pair.gateway, pair.nginx].map(|address| {
                let answer = ask(address, method, path, &fields);
                // A variable in a field does not convert.
                let says = |name: &str| {
                    name.starts_with("access-control-")
                        && (*path == "/wide/" || name == "access-control-allow-methods")
                };
                let mut cors = answer.headers.clone();
                cors.retain(|(name, _)| says(name));
                cors.sort_unstable();
                (essence(&answer), cors)
            });
            assert_eq!(found, expected, "{method} {path} {fields:?}");
        }
    }
}

fn clients(pair: &Pair) {
    for client in ["10.0.0.1", "10.1.0.1", "192.0.2.1", "2001:db8::1", "6.6.6.6, 10.2.0.1"] {
        for path in ["/office/", "/outside/", "/inner/"] {
            let fields = [("X-Forwarded-For", client)];
            let statuses =
                [pair.gateway, pair.nginx].map(|address| ask(address, "GET", path, &fields).status);
            assert_eq!(statuses[0], statuses[1], "{client} {path}");
        }
    }
}

fn bodies(pair: &Pair) {
    for (length, path) in [(10, "/small/"), (11, "/small/"), (1 << 20, "/"), ((1 << 20) + 1, "/")] {
        let statuses = [pair.gateway, pair.nginx].map(|address| {
            let mut client = Client::new(address);
            let length = length.to_string();
            client.send(head(
                "POST",
                path,
                &[("Content-Length", &length), ("Connection", "close")],
            ));
            let mut body = vec![b'x'; length.parse().expect("a number")];
            // The answer may come before all of it is sent.
            drop(io::Write::write_all(client.stream.get_mut(), &body));
            body.clear();
            client.try_read("POST").map(|answer| answer.status)
        });
        assert_eq!(statuses[0], statuses[1], "{length} {path}");
    }
}

/// Paths, which are asked in turn, header fields, and a count of requests.
type Row = (&'static str, &'static [(&'static str, &'static str)], usize);

/// Requests of one key in a row; `{}` is a word of each attempt.
const ROWS: &[Row] = &[
    ("/addr/", &[("X-Forwarded-For", "192.0.2.{}")], 5),
    ("/addr/", &[("X-Forwarded-For", "2001:db8::{}:1")], 4),
    ("/addr/", &[("X-Forwarded-For", "2001:db8::{}:2")], 4),
    ("/some/", &[("X-Forwarded-For", "10.3.3.{}")], 4),
    ("/some/", &[("X-Forwarded-For", "192.168.7.1")], 4),
    ("/some/", &[("X-Forwarded-For", "192.168.8.{}")], 3),
    ("/tenant/", &[("X-Tenant", "t{}")], 3),
    ("/tenant/", &[("X-Tenant", "")], 3),
    ("/tenant/", &[], 3),
    ("/arg/?user=u{}", &[], 4),
    ("/arg/?other=1", &[], 4),
    ("/uri/{}", &[], 4),
    ("/uri/{}/x?y={}", &[], 4),
    ("/both/", &[("X-One", "a{}"), ("X-Two", "b{}")], 4),
    ("/both/", &[("X-One", "c{}")], 8),
    ("/dry/", &[("X-Dry", "d{}")], 3),
    ("/shared/a/|/shared/b/", &[("X-Shared", "s{}")], 6),
    ("/shared/b/|/shared/a/|/shared/b/", &[], 9),
];

fn keys(pair: &Pair) {
    for (path, fields, count) in ROWS {
        let is_equal = (1..100).any(|attempt| {
            let word = attempt.to_string();
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| (*name, value.replace("{}", &word))).collect();
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let path = path.replace("{}", &word);
            let began = Instant::now();
            let [found, expected] = [pair.gateway, pair.nginx].map(|address| {
                let paths = path.split('|').cycle().take(*count);
                paths.map(|path| ask(address, "GET", path, &fields).status).collect::<Vec<_>>()
            });
            if began.elapsed() > SHORT {
                return false;
            }
            assert_eq!(found, expected, "{path} {fields:?}");
            true
        });
        assert!(is_equal, "{path}: never tried in time");
    }
}

/// Sends requests at once, and returns the statuses of those that are answered once `answered` are:
/// the others wait.
fn at_once(
    address: SocketAddr,
    path: &str,
    field: (&str, &str),
    count: usize,
    answered: usize,
) -> Vec<u16> {
    let mut clients: Vec<_> = (0..count)
        .map(|_| {
            let mut client = Client::new(address);
            client.send(head("GET", path, &[field]));
            client.stream.get_ref().set_nonblocking(true).expect("set");
            client
        })
        .collect();
    let mut statuses: Vec<u16> = eventually("answers", || {
        let is_answered = |client: &mut Client| {
            let mut byte = [0];
            client.stream.get_ref().peek(&mut byte).is_ok()
        };
        let answers = clients.iter_mut().filter_map(|client| is_answered(client).then_some(client));
        let ready: Vec<_> = answers.collect();
        (ready.len() >= answered).then(|| {
            let status = |client: &mut Client| {
                client.stream.get_ref().set_nonblocking(false).expect("set");
                client.read("GET").status
            };
            ready.into_iter().map(status).collect()
        })
    });
    statuses.sort_unstable();
    statuses
}

fn waits(pair: &Pair) {
    let is_equal = (1..100).any(|attempt| {
        let word = attempt.to_string();
        let began = Instant::now();
        // The first passes, two wait for a minute and more, two are rejected.
        let paced = [pair.gateway, pair.nginx]
            .map(|address| at_once(address, "/paced/", ("X-Paced", &word), 5, 3));
        // Two pass at once; the next two wait in nginx, and pass here.
        let split = [(pair.gateway, 6), (pair.nginx, 4)].map(|(address, answered)| {
            at_once(address, "/split/", ("X-Split", &word), 6, answered)
        });
        if began.elapsed() > SHORT {
            return false;
        }
        assert_eq!(paced, [[200, 429, 429], [200, 429, 429]]);
        assert_eq!(split[0], [200, 200, 200, 200, 429, 429]);
        assert_eq!(split[1], [200, 200, 429, 429]);
        true
    });
    assert!(is_equal, "never tried in time");
}

fn in_flight(pair: &Pair, held: &(Mutex<Held>, Condvar)) {
    let field = ("X-Held", "one");
    let mut waiting: Vec<_> = [pair.gateway, pair.gateway, pair.nginx, pair.nginx]
        .into_iter()
        .map(|address| {
            let mut client = Client::new(address);
            client.send(head("GET", "/held/x", &[field]));
            client
        })
        .collect();
    eventually("requests are held", || {
        (held.0.lock().expect("not poisoned").waiting == 4).then_some(())
    });
    for address in [pair.gateway, pair.nginx] {
        assert_eq!(ask(address, "GET", "/held/x", &[field]).status, 503);
        assert_eq!(ask(address, "GET", "/held/other/x", &[field]).status, 503);
        assert_eq!(ask(address, "GET", "/held", &[]).status, 301);
    }
    held.0.lock().expect("not poisoned").is_released = true;
    held.1.notify_all();
    for client in &mut waiting {
        assert_eq!(client.read("GET").status, 200);
    }
    for address in [pair.gateway, pair.nginx] {
        assert_eq!(ask(address, "GET", "/held/x", &[field]).status, 200);
    }
}

#[test]
fn the_command_writes_a_new_file_and_says_what_it_left_out() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let write = |text: &str| fs::write(folder.path().join("nginx.conf"), text).expect("written");
    let import = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        let output =
            command.current_dir(folder.path()).args(["import", "nginx.conf"]).args(more).output();
        let output = output.expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    write(
        "http { server { listen 8081; location / { proxy_pass http://127.0.0.1:9000; proxy_redirect off; } } }",
    );
    let (code, printed, lines) = import(&["--output", "gateway.yaml"]);
    assert_eq!((code, printed.as_str()), (Some(0), ""));
    assert!(lines.starts_with("Without `underscores_in_headers on`"), "{lines}");
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let (code, _, lines) = import(&["--output", "gateway.yaml"]);
    assert_eq!(code, Some(2), "a file that is there stays");
    assert!(lines.contains("cannot write gateway.yaml"), "{lines}");
    let checked = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .current_dir(folder.path())
        .args(["check", "--deny-warnings"])
        .output()
        .expect("it runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    write("http { gzip on; server { listen 8081; return 204; } }");
    let (code, printed, lines) = import(&[]);
    assert_eq!(
        (code, lines.as_str()),
        (
            Some(3),
            "Changes what clients, servers or logs get (1):\n  nginx.conf:1: gzip: only responses of servers are compressed\n"
        )
    );
    assert!(printed.ends_with("end: true\n"), "{printed}");
    write("http {");
    assert_eq!(import(&[]).0, Some(1));
    write("http { }");
    let (code, printed, lines) = import(&[]);
    assert_eq!((code, printed.as_str()), (Some(1), ""));
    assert!(lines.contains("no server"), "{lines}");
    fs::remove_file(folder.path().join("nginx.conf")).expect("removed");
    assert_eq!(import(&[]).0, Some(2));
}
