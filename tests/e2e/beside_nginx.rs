//! Directives at the edge of a site, imported, beside nginx with the same file.

use crate::{
    common::{
        http::{Answer, Client, head, raw},
        tls_server::Authority,
        upstream::{Request, Script},
    },
    import::{Pair, pair_of},
};
use rcgen::{DistinguishedName, DnType};
use std::{net::SocketAddr, path::Path, process::Command};

/// Response fields by which the peers are compared.
type Fields = Vec<(String, String)>;

fn ask(address: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let all: Vec<_> = fields.iter().copied().chain([("Connection", "close")]).collect();
    raw(address, head(method, path, &all)).unwrap_or_else(|| panic!("no response to {path}"))
}

/// Returns the response fields whose names begin with one of `prefixes`, in their order by name.
fn fields_of(answer: &Answer, prefixes: &[&str]) -> Fields {
    let is_asked = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let named = answer.headers.iter().filter(|(name, _)| is_asked(name));
    let mut fields: Fields = named.cloned().collect();
    fields.sort_unstable();
    fields
}

/// Asks both, and returns the response of flowgate and then that of nginx.
fn both(pair: &Pair, method: &str, path: &str, fields: &[(&str, &str)]) -> [Answer; 2] {
    [pair.gateway, pair.nginx].map(|address| ask(address, method, path, fields))
}

/// A server that says what it got, and the service that decides about requests at `/check`: its
/// status is what the client's `X-Verdict` asks for.
fn site() -> Script {
    Script::answering(|request| {
        if request.path().starts_with("/check") {
            return verdict(request);
        }
        let said = ["x-user", "x-auth-user", "x-name", "x-real-ip"]
            .map(|name| format!("{name}={}", request.header(name).unwrap_or("-")));
        let body = format!(
            "{} {} {} bytes",
            request.line.split(" HTTP/").next().unwrap_or_default(),
            said.join(" "),
            request.body.len(),
        );
        with_body("200 OK", "", &body)
    })
}

fn verdict(request: &Request) -> Vec<u8> {
    let asked = request.header("x-verdict").unwrap_or("401");
    let original = request.header("x-original-uri").unwrap_or("-");
    let is_plain = request.line.starts_with("GET ") && request.body.is_empty();
    // A service that got the client's body would spoil it for the server.
    let status = if is_plain { asked } else { "400" };
    let fields = format!(
        "x-auth-user: ann{original}\r\nwww-authenticate: Bearer realm=\"site\"\r\nset-cookie: s=1\r\n"
    );
    with_body(&format!("{status} Verdict"), &fields, "the verdict")
}

fn with_body(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{fields}content-length: {length}\r\n\r\n{body}").into_bytes()
}

const AUTH: &str = "
    limit_req_zone $http_x_key zone=limited:1m rate=1r/m; limit_req_status 429;
    limit_req_zone $http_x_shared zone=shared:1m rate=1r/m;
    server {
        listen 127.0.0.1:PORT; proxy_redirect off;
        location / {
            auth_request /check;
            auth_request_set $user $upstream_http_x_auth_user;
            proxy_set_header X-Auth-User $user;
            proxy_set_header X-Name $user;
            proxy_set_header X-User '';
            proxy_pass http://UP;
        }
        location /open/ { proxy_pass http://UP; }
        location /limited/ {
            limit_req zone=limited burst=2 nodelay;
            auth_request /check;
            proxy_pass http://UP;
        }
        location /shared/a/ { limit_req zone=shared burst=2 nodelay; auth_request /check; proxy_pass http://UP; }
        location /shared/b/ { limit_req zone=shared burst=2 nodelay; proxy_pass http://UP; }
        location = /check {
            internal;
            proxy_pass http://UP;
            proxy_pass_request_body off;
            proxy_set_header Content-Length '';
            proxy_set_header X-Original-URI $request_uri;
        }
    }";

#[test]
fn a_service_lets_in_whom_it_lets_in_at_nginx() {
    let server = site();
    let pair = pair_of(AUTH, server.address, &[]);
    for verdict in ["200", "204", "299", "401", "403"] {
        for (method, path, more) in [
            ("GET", "/a?b=c", None),
            ("HEAD", "/a", None),
            ("DELETE", "/a/%20b", None),
            ("GET", "/open/a", None),
            ("GET", "/a", Some(("X-User", "mallory"))),
            ("GET", "/a", Some(("X-Auth-User", "mallory"))),
            ("GET", "/a", Some(("X-Name", "mallory"))),
            ("GET", "/a", Some(("X-Original-URI", "/open/"))),
        ] {
            let fields: Vec<_> = [("X-Verdict", verdict)].into_iter().chain(more).collect();
            let [found, expected] = both(&pair, method, path, &fields).map(|answer| {
                let body = if answer.status < 300 { answer.text() } else { String::new() };
                // nginx passes no other field of the service, and this one with 401 only.
                let challenge = answer.header("www-authenticate").filter(|_| answer.status == 401);
                (answer.status, challenge.map(str::to_owned), body)
            });
            assert_eq!(found, expected, "{method} {path} {fields:?}");
        }
    }

    // The path of the service is no path of the site.
    assert_eq!(both(&pair, "GET", "/check", &[]).map(|answer| answer.status), [404, 404]);
}

#[test]
fn a_service_gets_no_body_and_the_server_all_of_it() {
    let server = site();
    let pair = pair_of(AUTH, server.address, &[]);
    for length in [0, 1, 100_000] {
        let [found, expected] = [pair.gateway, pair.nginx].map(|address| {
            let length = length.to_string();
            let fields = [("X-Verdict", "200"), ("Content-Length", &*length)];
            let mut client = Client::new(address);
            client.send(head("POST", "/upload", &fields));
            client.send(vec![b'x'; length.parse().expect("a number")]);
            let answer = client.read("POST");
            (answer.status, answer.text())
        });
        assert_eq!(found, expected, "{length}");
        assert!(found.1.ends_with(&format!(" {length} bytes")), "{found:?}");
    }
}

#[test]
fn a_limit_counts_before_the_service_is_asked() {
    let server = site();
    let pair = pair_of(AUTH, server.address, &[]);
    for verdict in ["200", "401"] {
        let fields = [("X-Verdict", verdict), ("X-Key", verdict)];
        let statuses = [pair.gateway, pair.nginx].map(|address| {
            let status = || ask(address, "GET", "/limited/a", &fields).status;
            [status(), status(), status(), status()]
        });
        let passed = verdict.parse().expect("a number");
        assert_eq!(statuses, [[passed, passed, passed, 429]; 2]);
    }
}

#[test]
fn a_limit_of_several_locations_counts_before_the_service_is_asked() {
    let server = site();
    let pair = pair_of(AUTH, server.address, &[]);
    // A location with the service and one without share the count, whatever the service says.
    for (verdict, passed) in [("200", 200), ("401", 401)] {
        for (paths, expected) in [
            (["/shared/a/"; 4], [passed, passed, passed, 429]),
            (["/shared/a/", "/shared/b/", "/shared/b/", "/shared/a/"], [passed, 200, 200, 429]),
        ] {
            let key = format!("{verdict} {}", paths[1]);
            let fields = [("X-Verdict", verdict), ("X-Shared", &*key)];
            let statuses = [pair.gateway, pair.nginx]
                .map(|address| paths.map(|path| ask(address, "GET", path, &fields).status));
            assert_eq!(statuses, [expected; 2], "{verdict} {paths:?}");
        }
    }
}

/// The one difference, by design: nginx answers 500 to what flowgate passes on.
#[test]
fn a_service_that_neither_lets_in_nor_rejects_is_passed_on_here() {
    let server = site();
    let pair = pair_of(AUTH, server.address, &[]);
    for (verdict, status) in [("302", 302), ("404", 404), ("429", 429), ("503", 503)] {
        let answers = both(&pair, "GET", "/a", &[("X-Verdict", verdict)]);
        assert_eq!(answers.each_ref().map(|answer| answer.status), [status, 500]);
        assert_eq!(answers[0].text(), "the verdict");
    }
}

/// Limits by keys of several parts, which a request may lack.
const KEYS: &str = "
    set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;
    limit_req_zone $binary_remote_addr$http_user_agent zone=agent:1m rate=1r/m;
    limit_req_zone $http_x_tenant$http_x_key zone=tenant:1m rate=1r/m;
    limit_req_zone v1:$http_x_key zone=text:1m rate=1r/m;
    limit_req_status 429;
    server {
        listen 127.0.0.1:PORT; proxy_redirect off;
        location /agent/ { limit_req zone=agent burst=1 nodelay; proxy_pass http://UP; }
        location /tenant/ { limit_req zone=tenant burst=1 nodelay; proxy_pass http://UP; }
        location /text/ { limit_req zone=text burst=1 nodelay; proxy_pass http://UP; }
    }";

#[test]
fn requests_that_lack_a_part_of_a_key_count_as_at_nginx() {
    let server = site();
    let pair = pair_of(KEYS, server.address, &[]);
    // Three requests of each kind, of which two pass: nginx counts each kind for itself.
    for (path, field, values) in [
        ("/agent/", "User-Agent", [Some("a"), Some("b"), Some(""), None]),
        ("/tenant/", "X-Tenant", [Some("a"), Some("b"), Some(""), None]),
        ("/tenant/", "X-Key", [Some("c"), Some("d"), Some(""), None]),
        ("/text/", "X-Key", [Some("e"), Some("f"), Some(""), None]),
    ] {
        for client in ["192.0.2.1", "192.0.2.2"] {
            for value in values {
                let fields: Vec<_> = [("X-Real-IP", client)]
                    .into_iter()
                    .chain(value.map(|value| (field, value)))
                    .collect();
                let [found, expected] = [pair.gateway, pair.nginx].map(|address| {
                    let status = || ask(address, "GET", path, &fields).status;
                    [status(), status(), status()]
                });
                assert_eq!(found, expected, "{path} {fields:?}");
            }
        }
    }
    let both = [("X-Tenant", "g"), ("X-Key", "h"), ("X-Real-IP", "192.0.2.3")];
    let statuses = [pair.gateway, pair.nginx].map(|address| {
        let status = || ask(address, "GET", "/tenant/", &both).status;
        [status(), status(), status()]
    });
    assert_eq!(statuses, [[200, 200, 429]; 2]);
}

const PAGES: &str = "
    server {
        listen 127.0.0.1:PORT; proxy_redirect off;
        error_page 404 500 502 503 /sorry;
        location = /sorry { internal; default_type text/plain; return 200 'sorry'; }
        location / { proxy_pass http://UP; proxy_intercept_errors on; }
        location /own/ { proxy_pass http://UP; }
        location /gone/ { proxy_pass http://127.0.0.1:1; proxy_intercept_errors on; }
    }";

#[test]
fn a_page_replaces_the_errors_that_it_replaces_at_nginx() {
    let server = Script::answering(|request| {
        let status = request.path().rsplit('/').next().unwrap_or_default();
        with_body(&format!("{status} Of the server"), "x-from: server\r\n", "from the server")
    });
    let pair = pair_of(PAGES, server.address, &[]);
    for status in ["200", "201", "400", "403", "404", "410", "500", "501", "502", "503", "504"] {
        for place in ["/", "/own/", "/gone/"] {
            for method in ["GET", "HEAD", "DELETE"] {
                let path = format!("{place}{status}");
                let [found, expected] =
                    both(&pair, method, &path, &[]).map(|answer| (answer.status, answer.text()));
                assert_eq!(found, expected, "{method} {path}");
            }
        }
    }
}

#[test]
fn another_field_names_the_client_as_at_nginx() {
    let server = site();
    let senders = ["127.0.0.1", "10.0.0.0/8"];
    for (directive, name) in [
        ("", "X-Real-IP"),
        ("real_ip_header X-Real-IP;", "X-Real-IP"),
        ("real_ip_header CF-Connecting-IP;", "CF-Connecting-IP"),
        ("real_ip_header True-Client-IP;", "True-Client-IP"),
        ("real_ip_header X-Forwarded-For; real_ip_recursive on;", "X-Forwarded-For"),
    ] {
        for sender in senders {
            let file = format!(
                "set_real_ip_from {sender}; {directive}
                server {{
                    listen 127.0.0.1:PORT; proxy_redirect off;
                    location / {{
                        allow 192.0.2.0/24; allow 2001:db8::/32; deny all;
                        proxy_set_header X-Real-IP $remote_addr;
                        proxy_pass http://UP;
                    }}
                    location /all/ {{
                        proxy_set_header X-Real-IP $remote_addr;
                        proxy_pass http://UP;
                    }}
                }}"
            );
            let pair = pair_of(&file, server.address, &[]);
            for value in [
                "192.0.2.1",
                "192.0.3.1",
                "2001:db8::1",
                "2001:DB8:0:0::1",
                "192.0.3.7, 192.0.2.1",
                "evil, 192.0.2.1",
                "unknown",
                "",
            ] {
                for path in ["/", "/all/"] {
                    let fields = [(name, value)];
                    let [found, expected] = both(&pair, "GET", path, &fields).map(|answer| {
                        let text = answer.text();
                        let said = text.split(' ').find(|word| word.starts_with("x-real-ip="));
                        (answer.status, said.map(str::to_owned))
                    });
                    assert_eq!(found, expected, "{sender} {directive} {name}: {value} {path}");
                }
            }
        }
    }
}

#[test]
fn the_proxy_protocol_names_the_client_as_at_nginx() {
    let server = site();
    let file = "
        set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;
        server {
            listen 127.0.0.1:PORT proxy_protocol; proxy_redirect off;
            location / { allow 192.0.2.0/24; allow 2001:db8::/32; deny all; proxy_pass http://UP; }
            location /all/ { proxy_set_header X-Real-IP $remote_addr; proxy_pass http://UP; }
        }";
    let why = "listen: connections of others than the trusted proxies are closed";
    let pair = pair_of(file, server.address, &[why]);
    for begin in [
        "PROXY TCP4 192.0.2.1 127.0.0.1 4711 80\r\n",
        "PROXY TCP4 192.0.3.1 127.0.0.1 4711 80\r\n",
        "PROXY TCP6 2001:db8::1 ::1 4711 80\r\n",
        "PROXY UNKNOWN\r\n",
    ] {
        for path in ["/", "/all/"] {
            let [found, expected] = [pair.gateway, pair.nginx].map(|address| {
                let fields = [("X-Forwarded-For", "192.0.2.9"), ("Connection", "close")];
                let answer = raw(address, format!("{begin}{}", head("GET", path, &fields)));
                let answer = answer.unwrap_or_else(|| panic!("no response to {begin}"));
                let text = answer.text();
                let said = text.split(' ').find(|word| word.starts_with("x-real-ip="));
                (answer.status, said.map(str::to_owned))
            });
            assert_eq!(found, expected, "{begin} {path}");
        }
    }
}

/// Locations for those whose certificate is valid, for one of them, and limits by certificate.
const CERTIFICATES: &str = "
    map $ssl_client_s_dn $is_ann { default 0; 'CN=ann,O=Example' 1; }
    map $ssl_client_verify $shows_none { default 1; SUCCESS 0; }
    limit_req_zone $ssl_client_fingerprint zone=each:1m rate=1r/m;
    limit_req_status 429;
    server {
        listen 127.0.0.1:PORT ssl;
        ssl_certificate FOLDER/site.pem; ssl_certificate_key FOLDER/site.key;
        ssl_client_certificate FOLDER/people.pem; ssl_verify_client optional;
        location / { proxy_redirect off; proxy_set_header X-User $ssl_client_s_dn; proxy_pass http://UP; }
        location /known/ { if ($ssl_client_verify != SUCCESS) { return 403; } return 200 known; }
        location /unknown/ { if ($ssl_client_verify = SUCCESS) { return 403; } return 200 unknown; }
        location /either/ { if ($shows_none) { return 401; } return 200 either; }
        location /ann/ { if ($is_ann = 0) { return 403; } return 200 ann; }
        location /example/ { if ($ssl_client_s_dn !~ 'O=Example$') { return 403; } return 200 example; }
        location /both/ {
            if ($ssl_client_verify != SUCCESS) { return 401; }
            if ($ssl_client_s_dn !~ 'CN=ann,') { return 403; }
            return 200 both;
        }
        location /limited/ { limit_req zone=each burst=1 nodelay; proxy_redirect off; proxy_pass http://UP; }
    }";

/// Returns the status and the body that a client gets who shows a certificate, if it has one.
fn ask_as(folder: &Path, address: SocketAddr, client: Option<&str>, path: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--http1.1", "--max-time", "20", "--cacert"]);
    command.arg(folder.join("root.pem")).args(["--write-out", " %{http_code}"]);
    if let Some(client) = client {
        command.arg("--cert").arg(folder.join(format!("{client}.pem")));
        command.arg("--key").arg(folder.join(format!("{client}.key")));
    }
    let port = address.port();
    command.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
    let output = command.arg(format!("https://localhost:{port}{path}")).output().expect("curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The pages of errors differ.
    match text.rsplit_once(' ') {
        Some((_, status)) if !status.starts_with('2') => status.to_owned(),
        _ => text,
    }
}

#[test]
fn certificates_open_what_they_open_at_nginx() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Authority::new("site");
    site.write(folder.path(), "root");
    site.sign(folder.path(), "site", &["localhost"], |_| {});
    let people = Authority::new("people");
    people.write(folder.path(), "people");
    for (name, organization) in [("ann", "Example"), ("bob", "Example"), ("carl", "Else")] {
        people.sign(folder.path(), name, &["client"], |params| {
            let mut owner = DistinguishedName::new();
            owner.push(DnType::OrganizationName, organization);
            owner.push(DnType::CommonName, name);
            params.distinguished_name = owner;
        });
    }

    let server = site_of_users();
    let file = CERTIFICATES.replace("FOLDER", &folder.path().display().to_string());
    let pair = pair_of(&file, server.address, &[]);
    let places = ["/", "/known/", "/unknown/", "/either/", "/ann/", "/example/", "/both/"];
    // Three requests, of which two pass for each certificate, and all without one.
    let limited = ["/limited/"; 3];
    for client in [Some("ann"), Some("bob"), Some("carl"), None] {
        for path in places.into_iter().chain(limited) {
            let [found, expected] = [pair.gateway, pair.nginx]
                .map(|address| ask_as(folder.path(), address, client, path));
            assert_eq!(found, expected, "{client:?} {path}");
        }
    }
}

/// A server that says which user it got. nginx leaves a field without a value out.
fn site_of_users() -> Script {
    Script::answering(|request| {
        let user = request.header("x-user").filter(|user| !user.is_empty());
        with_body("200 OK", "", user.unwrap_or("-"))
    })
}

/// CORS as people write it for nginx: by method, for every response, for successes, and by origin.
const CORS: &str = "
    server {
        listen 127.0.0.1:PORT; proxy_redirect off;
        location /recipe/ {
            if ($request_method = 'OPTIONS') {
                add_header 'Access-Control-Allow-Origin' '*';
                add_header 'Access-Control-Allow-Methods' 'GET, POST, OPTIONS';
                add_header 'Access-Control-Allow-Headers' 'DNT,User-Agent,Content-Type,Range';
                add_header 'Access-Control-Max-Age' 1728000;
                return 204;
            }
            if ($request_method = 'POST') {
                add_header 'Access-Control-Allow-Origin' '*' always;
                add_header 'Access-Control-Expose-Headers' 'Content-Length,Content-Range' always;
            }
            if ($request_method = 'GET') {
                add_header 'Access-Control-Allow-Origin' '*' always;
            }
            proxy_pass http://UP;
        }
        location /always/ {
            add_header Access-Control-Allow-Origin https://app.example.com always;
            add_header Access-Control-Allow-Credentials true always;
            if ($request_method = OPTIONS) { return 204; }
            proxy_pass http://UP;
        }
        location /success/ {
            add_header Access-Control-Allow-Origin https://app.example.com;
            proxy_pass http://UP;
        }
        location /origin/ {
            if ($http_origin = https://app.example.com) {
                add_header Access-Control-Allow-Origin https://app.example.com always;
                add_header Vary Origin always;
            }
            proxy_pass http://UP;
        }
    }";

#[test]
fn preflights_get_what_they_get_at_nginx() {
    let server = Script::answering(|request| {
        let status = request.path().rsplit('/').next().unwrap_or_default();
        with_body(&format!("{status} Of the server"), "", "from the server")
    });
    let pair =
        pair_of(CORS, server.address, &["add_header: errors get the field too, as with `always`"]);
    for place in ["/recipe/", "/always/", "/success/", "/origin/"] {
        for method in ["OPTIONS", "GET", "POST", "PUT", "HEAD"] {
            for origin in
                ["https://app.example.com", "https://a.example.org", "https://evil.example", "null"]
            {
                for status in ["200", "404", "500"] {
                    // Without `always`, errors have the field here only.
                    if place == "/success/" && status != "200" {
                        continue;
                    }
                    let path = format!("{place}{status}");
                    let fields = [
                        ("Origin", origin),
                        ("Access-Control-Request-Method", "PUT"),
                        ("Access-Control-Request-Headers", "content-type"),
                    ];
                    let [found, expected] = both(&pair, method, &path, &fields).map(|answer| {
                        (answer.status, fields_of(&answer, &["access-control-", "vary"]))
                    });
                    assert_eq!(found, expected, "{method} {path} {origin}");
                }
            }
        }
    }
}

/// Texts and pages whose type nginx takes from their path.
const TYPES: &str = "
    types { text/html html htm; application/json json; text/css css; }
    default_type application/octet-stream;
    server {
        listen 127.0.0.1:PORT; proxy_redirect off;
        error_page 502 /50x.html; error_page 504 /504.json;
        location = /status.json { return 200 '{\"ok\":1}'; }
        location /page.HTML { return 200 '<p>page'; }
        location = /plain { return 200 plain; }
        location = /none.txt { return 404 none; }
        location /v1.json/ { return 200 several; }
        location = /own.css { types { } default_type text/x-own; return 200 own; }
        location = /50x.html { internal; return 200 '<h1>sorry</h1>'; }
        location = /504.json { internal; return 200 '{}'; }
        location /gone/ { proxy_pass http://127.0.0.1:1; }
        location / { proxy_pass http://UP; }
    }";

#[test]
fn texts_and_pages_have_the_type_that_they_have_at_nginx() {
    let server = site();
    let pair = pair_of(TYPES, server.address, &[]);
    let paths = ["/status.json", "/page.HTML", "/plain", "/none.txt", "/own.css", "/gone/a"];
    let below = ["/v1.json/a", "/v1.json/a.html"];
    for path in paths.into_iter().chain([below[0]]) {
        let [found, expected] = both(&pair, "GET", path, &[]).map(|answer| {
            let media_type = answer.header("content-type").map(str::to_owned);
            (answer.status, media_type, answer.text())
        });
        assert_eq!(found, expected, "{path}");
    }

    // The one type of a location with several extensions.
    let types = both(&pair, "GET", below[1], &[])
        .map(|answer| answer.header("content-type").map(str::to_owned));
    assert_eq!(types.map(Option::unwrap_or_default), ["application/octet-stream", "text/html"]);
}

const URI: &str = "
    server {
        listen 127.0.0.1:PORT;
        location /to/ { return 301 https://new.test$uri$is_args$args; }
        location /dropped/ { return 302 /n$document_uri; }
        location /rewritten/ { rewrite ^ https://new.test$uri permanent; }
        location = /slash { return 308 $uri/; }
    }";

#[test]
fn the_path_leads_where_it_leads_at_nginx() {
    let server = site();
    let why = "return: the path in the redirect is as the client wrote it";
    let pair = pair_of(URI, server.address, &[why]);
    for path in [
        "/to/",
        "/to/a/b",
        "/to/a?b=c&d",
        "/dropped/a",
        "/dropped/a?b",
        "/rewritten/a?b",
        "/slash",
        "/slash?a",
    ] {
        let [found, expected] = both(&pair, "GET", path, &[]).map(|answer| {
            // nginx writes its own address before a path.
            let to = answer.header("location").unwrap_or_default();
            let own = format!("http://gateway.test:{}", pair.nginx.port());
            (answer.status, to.strip_prefix(&own).unwrap_or(to).to_owned())
        });
        assert_eq!(found, expected, "{path}");
    }

    // The difference that the line names.
    let to = both(&pair, "GET", "/to/a%21b//c", &[])
        .map(|answer| answer.header("location").unwrap_or_default().to_owned());
    assert_eq!(to, ["https://new.test/to/a%21b//c", "https://new.test/to/a!b/c"]);
}
