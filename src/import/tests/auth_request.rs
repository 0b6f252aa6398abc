//! `auth_request`: what becomes of the service, and where a route stays closed.

use super::{closed::route, import};
use crate::config::Text;
use std::path::Path;

/// Returns a site whose location `/app/` asks `/auth`.
fn site(app: &str, auth: &str) -> String {
    format!(
        "http {{ server {{ listen 81;
         location /app/ {{ auth_request /auth; {app} proxy_pass http://app:8000; }}
         location = /auth {{ {auth} }} }} }}"
    )
}

const AUTH: &str = "internal; proxy_pass http://127.0.0.1:9091/verify; proxy_pass_request_body off;
    proxy_set_header Content-Length \"\";";

#[test]
fn the_service_is_asked_for_what_it_gets_in_nginx() {
    let auth = format!(
        "{AUTH} proxy_set_header X-Original-URI $request_uri; proxy_set_header Host $host;
         proxy_set_header X-Original-Method $request_method; proxy_read_timeout 5s;"
    );
    let app =
        "auth_request_set $user $upstream_http_remote_user; proxy_set_header Remote-User $user;
        auth_request_set $mail $upstream_http_x_mail; proxy_set_header X-Email $mail;
        auth_request_set $cookie $upstream_http_set_cookie; add_header Set-Cookie $cookie;";
    let (yaml, _) = import(&site(app, &auth)).unwrap();
    let app = route(&yaml, "app");
    for part in [
        "path: /verify",
        "copy: [remote-user, { from: x-mail, to: x-email }]",
        "x-original-uri: \"{path}{query}\"",
        "x-original-method: \"{method}\"",
        "timeout: 5s",
    ] {
        assert!(app.contains(part), "{part}: {app}");
    }
    assert!(!app.contains("403") && !app.contains("content-length"), "{app}");
    assert!(yaml.contains("url: http://127.0.0.1:9091"), "{yaml}");
}

#[test]
fn limits_decide_before_the_service_where_they_can() {
    let zone = |name| format!("limit_req_zone $binary_remote_addr zone={name}:1m rate=1r/s;");
    let zones = ["one", "paced", "shared", "held", "open"].map(zone).concat();
    let app = "limit_req zone=one burst=5 nodelay; limit_req zone=paced burst=5;
        limit_req zone=shared burst=5 nodelay; limit_req zone=held burst=5;";
    let other = "location /other/ { limit_req zone=shared burst=5 nodelay; limit_req zone=one;
        limit_req zone=held burst=5; limit_req zone=open; proxy_pass http://app:8000; }
        location /third/ { limit_req zone=open; proxy_pass http://app:8000; }
        location = /auth";
    let text = site(app, AUTH).replace("http {", &format!("http {{ {zones}"));
    let text = text.replace("location = /auth", other);
    let (yaml, _) = import(&text).unwrap();
    let app = route(&yaml, "app");
    let rules: Vec<_> = app.lines().filter(|line| line.contains("- {")).collect();
    let is_first = |part: &str| {
        let rule = rules.iter().find(|rule| rule.contains(part));
        rule.unwrap().contains("before_auth: true")
    };
    assert!(is_first("name: one"));
    assert!(!is_first("max_wait"));
    assert!(!is_first("budget: shared"));
    assert!(!route(&yaml, "other").contains("before_auth"), "{yaml}");

    // A budget does if a route with a service uses it.
    let (_, budgets) = yaml.split_once("budgets:\n").expect("budgets");
    let (budgets, _) = budgets.split_once("routes:\n").expect("routes");
    let first: Vec<_> = budgets
        .split("  - name: ")
        .skip(1)
        .filter(|budget| budget.contains("before_auth: true"))
        .filter_map(|budget| budget.lines().next())
        .collect();
    assert_eq!(first, ["shared"], "{budgets}");
    Text::new(Path::new("gateway.yaml"), &yaml).rules().unwrap();
}

/// Returns the route `app` of a site whose requests with a 401 go on as `app` says.
fn with_login(app: &str, locations: &str) -> (String, Vec<String>) {
    let more = format!("{locations} location = /auth");
    let text = site(app, AUTH).replace("location = /auth", &more);
    let (yaml, lines) = import(&text).unwrap();
    (route(&yaml, "app"), lines)
}

#[test]
fn a_login_page_of_nginx_becomes_a_redirect() {
    for (app, locations, login) in [
        (
            "error_page 401 = @login;",
            "location @login { add_header Set-Cookie $x; return 302 /start?rd=$scheme://$http_host$request_uri; }",
            r#"login: "/start?rd={url}""#,
        ),
        (
            "error_page 401 = @login; auth_request_set $jwt $upstream_http_x_jwt;",
            "location @login { return 302 https://login.test/?url=$request_uri&token=$jwt&a=b; }",
            r#"login: "https://login.test/?url={uri}&a=b""#,
        ),
        (
            "error_page 401 =302 https://login.test/?rd=$scheme://$http_host$request_uri;",
            "",
            r#"login: "https://login.test/?rd={url}""#,
        ),
        (
            "error_page 401 =403 /oauth2/sign_in;",
            "location /oauth2/ { proxy_pass http://s; }",
            r#"login: "/oauth2/sign_in?rd={uri}""#,
        ),
    ] {
        let (app, lines) = with_login(app, locations);
        assert!(app.contains(login), "{app} {lines:?}");
        assert!(!lines.iter().any(|line| line.contains("error_page")), "{lines:?}");
    }

    for (app, locations, why) in [
        ("error_page 401 /own.html;", "", "no location passes its login page on"),
        ("error_page 401 @own;", "location @own { return 200 no; }", "@own redirects nowhere"),
        ("error_page 401 =302 $x;", "", "no placeholder stands for $x"),
    ] {
        let (app, lines) = with_login(app, locations);
        assert!(app.contains("path: /verify") && !app.contains("login"), "{app}");
        assert!(lines.iter().any(|line| line.contains(why)), "{why}: {lines:?}");
    }
}

#[test]
fn a_service_that_redirects_elsewhere_is_asked_there() {
    // Authelia's own recipe, whose values are variables of the server.
    let text = "http { server { listen 81;
        set $app http://app:8000; set $authelia http://authelia:9091/api/authz/auth-request;
        location /internal/authz { internal; proxy_pass $authelia; proxy_cache_bypass $cookie_s;
            proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
            proxy_next_upstream error; proxy_redirect http:// $scheme://; proxy_buffers 4 32k; }
        location / { auth_request /internal/authz;
            auth_request_set $user $upstream_http_remote_user; proxy_set_header Remote-User $user;
            auth_request_set $to $upstream_http_location; error_page 401 =302 $to;
            proxy_pass $app; } } }";
    let (yaml, lines) = import(text).unwrap();
    let all = route(&yaml, "all");
    for part in ["path: /api/authz/forward-auth", "copy: [remote-user]", "upstream: app:8000"] {
        assert!(all.contains(part), "{part}: {all} {lines:?}");
    }
    assert!(yaml.contains("url: http://authelia:9091"), "{yaml}");
    assert!(!all.contains("403") && !all.contains("login"), "{all}");
}

#[test]
fn the_service_may_be_below_a_location_and_its_cookies_in_several_fields() {
    let app = "auth_request_set $cookie $upstream_http_set_cookie;
        auth_request_set $second $upstream_cookie_a_1;
        if ($cookie ~* \"(; .*)\") { set $all $cookie; set $more \"a_1=$second$1\"; }
        if ($second) { add_header Set-Cookie $all; add_header Set-Cookie $more; }";
    let text = site(app, "").replace("location = /auth", "location = /other");
    let text = text.replace("auth_request /auth;", "auth_request /outpost/auth/nginx;").replace(
        "location = /other",
        "location /outpost { proxy_pass http://s:9000/outer; auth_request_set $x $upstream_http_y; }
         location = /other",
    );
    let (yaml, lines) = import(&text).unwrap();
    let app = route(&yaml, "app");
    assert!(app.contains("path: /outer/auth/nginx"), "{app} {lines:?}");
    assert!(
        !lines.iter().any(|line| line.contains(" if:") || line.contains("auth_request")),
        "{lines:?}"
    );
}

#[test]
fn a_service_that_would_decide_by_something_else_closes_the_route() {
    for (app, auth, part) in [
        ("satisfy any; allow 10.0.0.0/8; deny all;", AUTH, "satisfy any"),
        ("", "proxy_pass http://127.0.0.1:9091$uri$x;", "no value for $uri"),
        ("", "return 204;", "`return`"),
        ("", "proxy_pass http://a; if ($arg_x) { return 200; }", "`if`"),
        ("", "proxy_pass http://a; proxy_set_header X-A $ssl_client_raw_cert;", "x-a"),
        ("", "proxy_pass http://a; proxy_set_header Cookie \"\";", "cookie"),
        ("", "", "proxy_pass"),
    ] {
        let (yaml, lines) = import(&site(app, auth)).unwrap();
        let app = route(&yaml, "app");
        assert!(app.contains("respond: { status: 403 }"), "{auth}: {yaml}");
        assert!(!app.contains("\nupstream"), "{auth}: {yaml}");
        let reason = lines.iter().find(|line| line.contains("Closed"));
        assert!(reason.is_some_and(|line| line.contains(part)), "{part}: {lines:?}");
    }
    let elsewhere = site("", AUTH).replace("auth_request /auth;", "auth_request /other;");
    let (yaml, lines) = import(&elsewhere).unwrap();
    assert!(route(&yaml, "app").contains("respond: { status: 403 }"), "{yaml}");
    assert!(lines.iter().any(|line| line.contains("no location takes the path")), "{lines:?}");
}

/// nginx asks before the service has said anything, so that the question is always true there.
#[test]
fn a_condition_that_holds_without_the_service_is_not_left_out() {
    for app in [
        "auth_request_set $groups $upstream_http_x_groups; if ($groups !~ admin) { set $no 1; } if ($no) { return 403; }",
        "auth_request_set $groups $upstream_http_x_groups; set $no 0; if ($groups = '') { set $no 1; } if ($no) { return 403; }",
    ] {
        let (yaml, lines) = import(&site(app, AUTH)).unwrap();
        let app = route(&yaml, "app");
        assert!(app.contains("respond: { status: 403 }"), "{app} {lines:?}");
    }
}

#[test]
fn a_location_that_switches_it_off_asks_no_service() {
    let text = "http { server { listen 81; auth_request /auth;
        location / { proxy_pass http://h; }
        location /open/ { auth_request off; proxy_pass http://h; }
        location = /auth { internal; proxy_pass http://s; } } }";
    let (yaml, lines) = import(text).unwrap();
    assert!(!lines.iter().any(|line| line.contains("auth_request")), "{lines:?}");
    assert!(route(&yaml, "all").contains("forward:"), "{yaml}");
    let open = route(&yaml, "open");
    assert!(open.contains("upstream: h") && !open.contains("auth:"), "{yaml}");
}

#[test]
fn a_service_that_no_location_asks_is_without_effect() {
    let text = "http { server { listen 81;\nauth_request /auth;\nlocation / { return 200; }
        location = /auth { internal; proxy_pass http://s; } } }";
    let (_, lines) = import(text).unwrap();
    let expected = "nginx.conf:2: auth_request: no converted location has it: nginx does not ask the service before a `return`";
    assert!(lines.iter().any(|line| line == expected), "{lines:?}");
}

#[test]
fn no_client_writes_what_nginx_overwrites() {
    // Of a location that asks no service, in gRPC, and of variables that no placeholder stands for.
    let text = "http { server { listen 81; auth_request /auth;
        auth_request_set $user $upstream_http_x_user;
        location / { proxy_set_header X-User $user; proxy_pass http://h; }
        location /open/ { auth_request off; proxy_set_header X-User $user; proxy_pass http://h; }
        location /id/ { proxy_set_header X-User \"id:$user\"; proxy_set_header X-Verify $ssl_client_verify; proxy_pass http://h; }
        location /rpc/ { grpc_set_header X-User $user; grpc_pass grpc://h; }
        location = /auth { internal; proxy_pass http://s; } } }";
    let (yaml, _) = import(text).unwrap();
    assert!(route(&yaml, "all").contains("copy: [x-user]"), "{yaml}");
    assert!(route(&yaml, "open").contains("remove: [x-user]"), "{yaml}");
    let renamed = route(&yaml, "id");
    assert!(renamed.contains("remove: [x-user, x-verify]"), "{yaml}");
    assert!(route(&yaml, "rpc").contains("copy: [x-user]"), "{yaml}");
}

#[test]
fn the_location_is_the_one_that_nginx_asks() {
    let of = |locations: &str| {
        format!(
            "http {{ server {{ listen 81; location /app/ {{ auth_request /auth; proxy_pass http://app; }}
             {locations} }} }}"
        )
    };
    let exact = "location /auth { proxy_pass http://app; } location = /auth { internal; proxy_pass http://service; }";
    let (yaml, _) = import(&of(exact)).unwrap();
    let app = route(&yaml, "app");
    assert!(app.contains("forward: { upstream: service"), "{yaml}");

    let by_regex =
        "location /auth { proxy_pass http://service; } location ~ ^/a { proxy_pass http://app; }";
    let (yaml, _) = import(&of(by_regex)).unwrap();
    assert!(route(&yaml, "app").contains("respond: { status: 403 }"), "{yaml}");
    for field in ["Host auth.internal", "X-Forwarded-Host fixed.test", "X-Forwarded-Proto https"] {
        let service =
            format!("location = /auth {{ proxy_pass http://s; proxy_set_header {field}; }}");
        let (yaml, _) = import(&of(&service)).unwrap();
        assert!(route(&yaml, "app").contains("respond: { status: 403 }"), "{field}: {yaml}");
    }
}
