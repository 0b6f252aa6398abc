//! Tokens: signed, of one issuer, and with keys that rotate.

use crate::common::{
    Gateway, curl,
    http::{Answer, Client},
    replace, upstream, yaml,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use serde_json::{Value, json};
use std::{fs, net::SocketAddr, process::Command, time::SystemTime};

/// An issuer's key.
struct Issuer {
    id: &'static str,
    key: EncodingKey,
    /// Its public half.
    jwk: Value,
}

impl Issuer {
    fn new(id: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let (x, y) = pair.der_bytes()[1..].split_at(32);
        let [x, y] = [x, y].map(|half| URL_SAFE_NO_PAD.encode(half));
        let jwk = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": id });
        Self { id, key: EncodingKey::from_ec_der(pair.serialized_der()), jwk }
    }

    fn keys(&self) -> String {
        json!({ "keys": [self.jwk] }).to_string()
    }

    /// A token for `user` that expires in so many seconds.
    fn token(&self, user: &str, expires: i64) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, &claims(user, expires), &self.key).expect("signed")
    }
}

fn claims(user: &str, expires: i64) -> Value {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let now = i64::try_from(now.as_secs()).expect("before the end of time");
    json!({ "sub": user, "iss": "https://issuer.test", "aud": "shop", "exp": now + expires, "tenant": 7 })
}

const ROUTES: &str = "  - name: all
    match: { path_prefix: / }
    upstream: up
    auth: { jwt: { jwks: keys.json, issuer: https://issuer.test, audience: shop } }
    flow: [{ name: each, limit: 2/1h, key: 'jwt:sub' }]
";

/// Signs a token with these claims in addition to those that every token has.
fn signed(issuer: &Issuer, more: &Value) -> String {
    let mut all = claims("ann", 60);
    for (name, value) in more.as_object().expect("a map") {
        all[name] = value.clone();
    }
    let header = Header { kid: Some(issuer.id.to_owned()), ..Header::new(Algorithm::ES256) };
    encode(&header, &all, &issuer.key).expect("signed")
}

fn start(upstream: SocketAddr, routes: &str, keys: &str) -> Gateway {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("keys.json"), keys).expect("written");
    Gateway::start_in(dir, &yaml(upstream, routes), &[])
}

fn ask(gateway: &Gateway, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    Client::new(gateway.web()).request("GET", "/", &[("Authorization", &bearer)])
}

#[test]
fn a_claim_that_rules_count_by_cannot_be_forged() {
    let upstream = upstream::echo();
    let issuer = Issuer::new("a");
    let stranger = Issuer::new("a");
    let gateway = start(upstream.address, ROUTES, &issuer.keys());
    let secret = EncodingKey::from_secret(issuer.jwk.to_string().as_bytes());
    let confused =
        encode(&Header::new(Algorithm::HS256), &claims("alice", 60), &secret).expect("signed");
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let unsigned = format!("{}.{}.", part(json!({ "alg": "none" })), part(claims("alice", 60)));
    for (token, why) in [
        (stranger.token("alice", 60), "the token's signature is wrong"),
        (issuer.token("alice", -120), "the token has expired"),
        (confused, "the token is signed by an algorithm that is not allowed"),
        (unsigned, "the token is malformed"),
    ] {
        let answer = ask(&gateway, &token);
        assert_eq!(answer.status, 401, "{why}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        assert!(answer.text().contains(why), "{}", answer.text());
    }
    let answer = Client::new(gateway.web()).get("/");
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")));
    // None of these used anything of alice's limit.
    for (user, status) in [("alice", 200), ("alice", 200), ("alice", 429), ("bob", 200)] {
        assert_eq!(ask(&gateway, &issuer.token(user, 60)).status, status, "{user}");
    }
    let url = format!("http://{}/", gateway.web());
    let field = format!("Authorization: Bearer {}", issuer.token("carol", 60));
    let http2 = ["--http2-prior-knowledge", "-i", "-H"];
    assert!(curl(&[&http2[..], &[&field, &url]].concat()).starts_with("HTTP/2 200"));
    let call = [("Content-Type", "application/grpc"), ("Content-Length", "0")];
    let denied = Client::new(gateway.web()).request("POST", "/", &call);
    assert_eq!((denied.status, denied.header("grpc-status")), (200, Some("16")));
}

#[test]
fn keys_rotate_while_it_runs_and_a_bad_file_changes_nothing() {
    let upstream = upstream::echo();
    let old = Issuer::new("old");
    let new = Issuer::new("new");
    let gateway = start(upstream.address, ROUTES, &old.keys());
    let keys = gateway.dir.path().join("keys.json");
    let status = |issuer: &Issuer, user: &str| ask(&gateway, &issuer.token(user, 60)).status;
    assert_eq!((status(&old, "a"), status(&new, "a")), (200, 401));
    let seen = gateway.log_len();
    replace(&keys, "{ \"keys\": [] }");
    gateway.wait_log_after(seen, "has no key for the `algorithms` of this route");
    assert_eq!((status(&old, "b"), status(&new, "b")), (200, 401));
    replace(&keys, &json!({ "keys": [old.jwk, new.jwk] }).to_string());
    let line = gateway.wait_log_after(seen, "reloaded");
    assert!(line.contains("route all (auth)") && line.contains("reset 0"), "{line}");
    assert_eq!((status(&old, "c"), status(&new, "c")), (200, 200));
    let seen = gateway.log_len();
    replace(&keys, &new.keys());
    gateway.wait_log_after(seen, "reloaded");
    assert_eq!((status(&old, "d"), status(&new, "d")), (401, 200));
}

#[test]
fn a_token_may_be_in_a_field_or_a_cookie_or_beside_passwords() {
    let upstream = upstream::echo();
    let issuer = Issuer::new("a");
    // `open sesame` with the cost 5.
    let hash = "$2y$05$bvIG6Nmid91Mu9RcmmWZfOpG29Fwqhp9izrpUlNDcHYnxtiP7OuIe";
    let routes = "  - { name: field, match: { path: /field }, upstream: up, auth: { jwt: { jwks: keys.json, header: x-token } } }
  - { name: cookie, match: { path: /cookie }, upstream: up, auth: { jwt: { jwks: keys.json, cookie: session } } }
  - name: either
    match: { path: /either }
    upstream: up
    auth: { basic: users, jwt: { jwks: keys.json } }
    flow: [{ name: each, limit: 1/1h, key: user }, { name: tenant, limit: 9/1h, key: 'jwt:tenant' }]";
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("keys.json"), issuer.keys()).expect("written");
    fs::write(dir.path().join("users"), format!("alice:{hash}\n")).expect("written");
    let gateway = Gateway::start_in(dir, &yaml(upstream.address, routes), &[]);
    let token = issuer.token("alice", 60);
    let bearer = format!("Bearer {token}");
    let cookie = format!("a=b; session={token}");
    let basic = "Basic YWxpY2U6b3BlbiBzZXNhbWU=";
    let mut client = Client::new(gateway.web());
    for (path, fields, status) in [
        ("/field", &[("X-Token", token.as_str())][..], 200),
        ("/field", &[("X-Token", &token), ("X-Token", &token)], 401),
        ("/field", &[("Authorization", &bearer)], 401),
        ("/cookie", &[("Cookie", &cookie)], 200),
        ("/cookie", &[("Cookie", &cookie), ("Cookie", &cookie)], 401),
        ("/cookie", &[("Authorization", &bearer)], 401),
        ("/either", &[("Authorization", basic)], 200),
        // The same user by a token: the limit of one is used up.
        ("/either", &[("Authorization", &bearer)], 429),
        ("/either", &[("Authorization", "Bearer x")], 401),
    ] {
        let answer = client.request("GET", path, fields);
        assert_eq!(answer.status, status, "{path} {fields:?}");
    }
    let answer = client.get("/either");
    let challenges = answer.headers.iter().filter(|(name, _)| name == "www-authenticate");
    assert_eq!(challenges.count(), 2);
}

#[test]
fn a_claim_in_a_claim_is_a_key_and_so_is_a_list_in_any_order() {
    let issuer = Issuer::new("a");
    let routes = ROUTES.replace("jwt:sub", "jwt:realm_access.roles");
    let upstream = upstream::echo();
    let gateway = start(upstream.address, &routes, &issuer.keys());
    let roles = |roles: Value| json!({ "realm_access": { "roles": roles } });
    for (claims, status) in [
        (roles(json!(["admin", "dev"])), 200),
        (roles(json!(["dev", "admin"])), 200),
        (roles(json!(["admin", "dev"])), 429),
        (roles(json!(["dev"])), 200),
        // A claim of exactly this name comes first.
        (
            json!({ "realm_access.roles": "dev", "realm_access": { "roles": ["admin", "dev"] } }),
            200,
        ),
        (roles(json!("dev")), 429),
    ] {
        assert_eq!(ask(&gateway, &signed(&issuer, &claims)).status, status, "{claims}");
    }
    let admin = gateway.address("admin").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    let claims = ["--claim", "realm_access.roles=dev", "--claim", "realm_access.roles=admin"];
    command.args(["explain", "GET", "/", "--admin", &admin]).args(claims);
    let said = command.output().expect("it runs").stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("jwt:realm_access.roles = admin,dev"), "{said}");
}

#[test]
fn a_claim_decides_about_overrides_and_exceptions() {
    let issuer = Issuer::new("a");
    let upstream = upstream::echo();
    let routes = "  - name: all
    match: { path_prefix: / }
    upstream: up
    auth: { jwt: { jwks: keys.json } }
    flow:
      - name: each
        limit: 1/1h
        key: user
        except: { jwt: { account.roles: admin }, user: [root, monitor] }
        overrides:
          - { when: { jwt:plan: [gold, silver] }, limit: 3/1h }
          - { when: { jwt:plan: bronze, path_prefix: /cheap }, limit: 2/1h }
";
    let gateway = start(upstream.address, routes, &issuer.keys());
    let passed = |claims: Value, path: &str| {
        let bearer = format!("Bearer {}", signed(&issuer, &claims));
        let ask = || {
            let mut client = Client::new(gateway.web());
            client.request("GET", path, &[("Authorization", &bearer)]).status
        };
        (0..5).filter(|_| ask() == 200).count()
    };
    for (claims, path, expected) in [
        (json!({ "sub": "a" }), "/", 1),
        (json!({ "sub": "b", "plan": "gold" }), "/", 3),
        (json!({ "sub": "c", "plan": "silver" }), "/", 3),
        (json!({ "sub": "d", "plan": "bronze" }), "/", 1),
        (json!({ "sub": "e", "plan": "bronze" }), "/cheap", 2),
        (json!({ "sub": "f", "account": { "roles": ["dev", "admin"] } }), "/", 5),
        (json!({ "sub": "g", "account": { "roles": "x,admin" } }), "/", 1),
        (json!({ "sub": "root" }), "/", 5),
    ] {
        assert_eq!(passed(claims.clone(), path), expected, "{claims}");
    }

    // Servers would read these paths as another rule's for some clients.
    let bearer = format!("Bearer {}", signed(&issuer, &json!({ "sub": "h", "plan": "bronze" })));
    for path in ["/cheap%2fx", "/x%2f..%2fcheap", "/cheap;x", "/cheap;x/y"] {
        let mut client = Client::new(gateway.web());
        let status = client.request("GET", path, &[("Authorization", &bearer)]).status;
        assert_eq!(status, 400, "{path}");
    }
}

#[test]
fn an_explanation_verifies_a_token_or_takes_claims_without_one() {
    let issuer = Issuer::new("a");
    let routes = ROUTES.replace("jwt:sub", "jwt:tenant");
    let upstream = upstream::echo();
    let gateway = start(upstream.address, &routes, &issuer.keys());
    let explain = |arguments: &[&str]| {
        let admin = gateway.address("admin").to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["explain", "GET", "/", "--admin", &admin]).args(arguments);
        let output = command.output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let valid = issuer.token("alice", 60);
    let header = format!("authorization: Bearer {valid}");
    for arguments in [&["--token", &valid][..], &["-H", &header]] {
        let said = explain(arguments);
        assert!(said.contains("jwt:tenant = 7") && said.contains("→ passed"), "{said}");
    }
    let claimed = explain(&["--claim", "tenant=acme", "--claim", "sub=alice"]);
    assert!(claimed.contains("jwt:tenant = acme"), "{claimed}");
    let stranger = Issuer::new("a").token("alice", 60);
    let said = explain(&["--token", &stranger]);
    assert!(said.contains("401") && said.contains("the token's signature is wrong"), "{said}");
    let said = explain(&[]);
    assert!(said.contains("401") && said.contains("--claim tenant=acme"), "{said}");
    let wrong = explain(&["--claim", "tenant"]);
    assert!(wrong.contains("write NAME=VALUE"), "{wrong}");
}
