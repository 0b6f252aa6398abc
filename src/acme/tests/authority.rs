//! A small authority of ACME (RFC 8555) with renewal information (RFC 9773), for tests: it can fail in
//! many ways. It verifies no signatures; `pebble` does.

#![expect(clippy::wildcard_enum_match_arm, reason = "a fault changes one step, and no other")]

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SignatureAlgorithm,
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    time::{Duration, UNIX_EPOCH},
};

/// Its host in all addresses.
pub(super) const HOST: &str = "ca.example";

/// A way to fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    /// It responds to nothing; whoever carries the requests decides between an error and a wait.
    Unreachable,
    Hanging,
    /// It responds 200 with something else.
    Garbage,
    /// A directory with URLs that are none.
    WrongUrls,
    /// A body of 2 MiB.
    Huge,
    /// 429 with this `Retry-After`, in words.
    RateLimited(&'static str),
    /// 503 with a page of a proxy.
    Page,
    /// It forgets each nonce.
    BadNonce,
    /// Orders stay pending.
    Pending,
    /// Challenges fail.
    Unauthorized,
    /// Certificates for another key.
    OtherKey,
    /// Certificates for another name.
    OtherName,
    /// No certificates in the chain.
    NoChain,
    /// Tokens that lead out of a folder.
    WrongTokens,
    /// Orders for another name.
    OtherOrder,
    /// Only DNS-01.
    OnlyDns,
}

struct Order {
    names: Vec<String>,
    /// True for each name that is valid, if that is known.
    valid: Vec<Option<bool>>,
    chain: Option<String>,
    looks: u32,
    replaces: Option<String>,
}

/// True if a challenge of a kind for a name is answered with this beginning.
type Verify = Box<dyn Fn(&str, &str, &str) -> bool + Send>;

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) fault: Fault,
    /// The lifetime of certificates.
    pub(super) lifetime: Duration,
    /// The window of renewal, in shares of the lifetime.
    pub(super) window: Option<[f64; 2]>,
    /// The lead of its clock over the caller's, in seconds.
    pub(super) clock_ahead: i64,
    /// The number of looks at an order before it goes on.
    pub(super) slowness: u32,
    /// True if the reply to an order does not have `replaces`.
    pub(super) forgets_replaces: bool,
    verify: Verify,
    nonces: HashSet<String>,
    made_nonces: u64,
    accounts: HashSet<String>,
    pub(super) accounts_made: usize,
    orders: Vec<Order>,
    pub(super) requests: usize,
    pub(super) challenges: Vec<String>,
}

impl Authority {
    pub(super) fn new(lifetime: Duration, verify: Verify) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(params, KeyPair::generate().expect("a key"));
        Self {
            issuer,
            fault: Fault::None,
            lifetime,
            window: None,
            clock_ahead: 0,
            slowness: 1,
            forgets_replaces: false,
            verify,
            nonces: HashSet::new(),
            made_nonces: 0,
            accounts: HashSet::new(),
            accounts_made: 0,
            orders: Vec::new(),
            requests: 0,
            challenges: Vec::new(),
        }
    }

    /// Returns the orders placed so far, each with its names.
    pub(super) fn orders(&self) -> Vec<Vec<String>> {
        self.orders.iter().map(|order| order.names.clone()).collect()
    }

    /// Returns which certificates the orders replace.
    pub(super) fn replaced(&self) -> Vec<Option<String>> {
        self.orders.iter().map(|order| order.replaces.clone()).collect()
    }

    /// Loses all accounts.
    pub(super) fn forget_accounts(&mut self) {
        self.accounts.clear();
    }

    pub(super) fn respond(&mut self, request: &Request<Bytes>, now: u64) -> Response<Bytes> {
        self.requests += 1;
        match self.fault {
            Fault::Garbage => return reply(StatusCode::OK, "<html>It works!</html>"),
            Fault::Huge => return reply(StatusCode::OK, &"x".repeat(2 << 20)),
            Fault::Page => return reply(StatusCode::SERVICE_UNAVAILABLE, "<html>down</html>"),
            _ => {}
        }
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let mut response = match parts[..] {
            ["directory"] => self.directory(),
            ["nonce"] => reply(StatusCode::OK, ""),
            ["renewal", id] => self.renewal(id),
            _ => self.signed(request, &parts, now),
        };
        self.made_nonces += 1;
        let nonce = format!("nonce{}", self.made_nonces);
        response.headers_mut().insert("replay-nonce", nonce.parse().expect("a nonce"));
        self.nonces.insert(nonce);
        response
    }

    fn directory(&self) -> Response<Bytes> {
        let url = |path: &str| match self.fault {
            Fault::WrongUrls => "::no url::".to_owned(),
            _ => format!("https://{HOST}/{path}"),
        };
        let mut directory = json!({
            "newNonce": url("nonce"), "newAccount": url("account"), "newOrder": url("order"),
            "revokeCert": url("revoke"), "keyChange": url("key"), "meta": {},
        });
        if self.window.is_some() {
            directory["renewalInfo"] = url("renewal").into();
        }
        reply(StatusCode::OK, &directory.to_string())
    }

    /// The window of a certificate, whose identifier has the times in its serial.
    fn renewal(&self, id: &str) -> Response<Bytes> {
        let serial = id.split_once('.').map_or("", |(_, serial)| serial);
        let serial = BASE64_URL_SAFE_NO_PAD.decode(serial).unwrap_or_default();
        let begin: [u8; 8] = serial[serial.len() - 8..].try_into().unwrap_or_default();
        let begin = u64::from_be_bytes(begin);
        let Some(window) = self.window else { return reply(StatusCode::NOT_FOUND, "{}") };
        let [start, end] = window.map(|share| {
            let at = UNIX_EPOCH + Duration::from_secs(begin) + self.lifetime.mul_f64(share);
            humantime::format_rfc3339_seconds(at).to_string()
        });
        let body = json!({ "suggestedWindow": { "start": start, "end": end } });
        let mut response = reply(StatusCode::OK, &body.to_string());
        response.headers_mut().insert("retry-after", "60".parse().expect("a number"));
        response
    }

    fn signed(&mut self, request: &Request<Bytes>, parts: &[&str], now: u64) -> Response<Bytes> {
        let jws: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let decode = |key: &str| {
            let text = BASE64_URL_SAFE_NO_PAD.decode(jws[key].as_str().unwrap_or_default());
            serde_json::from_slice::<Value>(&text.unwrap_or_default()).unwrap_or_default()
        };
        let head = decode("protected");
        let payload = decode("payload");
        let nonce = head["nonce"].as_str().unwrap_or_default();
        if !self.nonces.remove(nonce) || self.fault == Fault::BadNonce {
            return problem(StatusCode::BAD_REQUEST, "badNonce", "an old nonce");
        }
        if head["url"] != format!("https://{HOST}{}", request.uri().path()) {
            return problem(StatusCode::UNAUTHORIZED, "unauthorized", "another url");
        }
        if let Fault::RateLimited(wait) = self.fault {
            let mut response =
                problem(StatusCode::TOO_MANY_REQUESTS, "rateLimited", "too many certificates");
            response.headers_mut().insert("retry-after", wait.parse().expect("a value"));
            return response;
        }
        if parts[0] != "account"
            && !self.accounts.contains(head["kid"].as_str().unwrap_or_default())
        {
            return problem(StatusCode::BAD_REQUEST, "accountDoesNotExist", "no such account");
        }

        let number = |index: usize| parts.get(index).and_then(|part| part.parse::<usize>().ok());
        match (parts[0], number(1)) {
            ("account", None) => self.account(&payload),
            ("order", None) => self.place(&payload),
            ("order", Some(order)) if order < self.orders.len() => {
                self.order(order, StatusCode::OK)
            }
            ("authz", Some(order)) => self.authorization(order, number(2).unwrap_or_default()),
            ("chall", Some(order)) => {
                self.challenge(order, number(2).unwrap_or_default(), parts[3])
            }
            ("finalize", Some(order)) => self.finalize(order, &payload, now),
            ("cert", Some(order)) => {
                let chain = self.orders[order].chain.clone().unwrap_or_default();
                reply(StatusCode::OK, &chain)
            }
            _ => problem(StatusCode::NOT_FOUND, "malformed", "no such resource"),
        }
    }

    fn account(&mut self, payload: &Value) -> Response<Bytes> {
        if payload["termsOfServiceAgreed"] != true {
            return problem(StatusCode::FORBIDDEN, "userActionRequired", "agree to the terms");
        }
        self.accounts_made += 1;
        let url = format!("https://{HOST}/account/{}", self.accounts_made);
        self.accounts.insert(url.clone());
        let mut response = reply(StatusCode::CREATED, "{\"status\":\"valid\"}");
        response.headers_mut().insert("location", url.parse().expect("a url"));
        response
    }

    fn place(&mut self, payload: &Value) -> Response<Bytes> {
        let names = payload["identifiers"].as_array().cloned().unwrap_or_default();
        let name = |one: &Value| one["value"].as_str().unwrap_or_default().to_owned();
        let mut names: Vec<String> = names.iter().map(name).collect();
        if self.fault == Fault::OtherOrder {
            names = names.iter().map(|_| "other.example".to_owned()).collect();
        }
        let valid = names.iter().map(|_| None).collect();
        let replaces = payload["replaces"].as_str().map(str::to_owned);
        self.orders.push(Order { names, valid, chain: None, looks: 0, replaces });
        self.order(self.orders.len() - 1, StatusCode::CREATED)
    }

    fn order(&mut self, index: usize, status: StatusCode) -> Response<Bytes> {
        let url = |path: &str| format!("https://{HOST}/{path}/{index}");
        let order = &mut self.orders[index];
        order.looks += 1;
        let is_slow = order.looks <= self.slowness || self.fault == Fault::Pending;
        let state = match (&order.chain, &order.valid) {
            (Some(_), _) => "valid",
            (None, valid) if valid.contains(&Some(false)) => "invalid",
            (None, valid) if valid.contains(&None) || is_slow => "pending",
            (None, _) => "ready",
        };
        let authorizations: Vec<_> =
            (0..order.names.len()).map(|name| format!("{}/{name}", url("authz"))).collect();
        let mut body = json!({
            "status": state, "authorizations": authorizations, "finalize": url("finalize"),
            "identifiers": [],
        });
        if order.chain.is_some() {
            body["certificate"] = url("cert").into();
        }
        if let Some(replaces) = order.replaces.as_ref().filter(|_| !self.forgets_replaces) {
            body["replaces"] = replaces.as_str().into();
        }
        let mut response = reply(status, &body.to_string());
        response.headers_mut().insert("location", url("order").parse().expect("a url"));
        response
    }

    fn token(&self, order: usize, name: usize) -> String {
        match self.fault {
            Fault::WrongTokens => "../../../account".to_owned(),
            _ => format!("token-{order}-{name}"),
        }
    }

    fn authorization(&self, order: usize, name: usize) -> Response<Bytes> {
        let placed = &self.orders[order];
        let status = match placed.valid[name] {
            None => "pending",
            Some(true) => "valid",
            Some(false) => "invalid",
        };
        let kinds: &[&str] = match self.fault {
            Fault::OnlyDns => &["dns-01"],
            _ => &["dns-01", "http-01", "tls-alpn-01"],
        };
        let challenge = |kind: &&str| {
            let mut challenge = json!({
                "type": kind, "status": status, "token": self.token(order, name),
                "url": format!("https://{HOST}/chall/{order}/{name}/{kind}"),
            });
            if status == "invalid" {
                challenge["error"] = json!({ "type": "urn:ietf:params:acme:error:connection",
                    "detail": "connection refused" });
            }
            challenge
        };
        let body = json!({
            "status": status, "identifier": { "type": "dns", "value": placed.names[name] },
            "challenges": kinds.iter().map(challenge).collect::<Vec<_>>(),
        });
        reply(StatusCode::OK, &body.to_string())
    }

    fn challenge(&mut self, order: usize, name: usize, kind: &str) -> Response<Bytes> {
        self.challenges.push(kind.to_owned());
        let token = self.token(order, name);
        let host = self.orders[order].names[name].clone();
        let is_answered = (self.verify)(kind, &host, &token);
        let is_valid = is_answered && self.fault != Fault::Unauthorized;
        self.orders[order].valid[name] = Some(is_valid);
        let body = json!({ "type": kind, "status": "processing", "token": token,
            "url": format!("https://{HOST}/chall/{order}/{name}/{kind}") });
        reply(StatusCode::OK, &body.to_string())
    }

    fn finalize(&mut self, order: usize, payload: &Value, now: u64) -> Response<Bytes> {
        let csr = payload["csr"].as_str().unwrap_or_default();
        let csr = BASE64_URL_SAFE_NO_PAD.decode(csr).unwrap_or_default();
        let now = now.saturating_add_signed(self.clock_ahead);
        let chain = self.chain(&self.orders[order].names, &csr, now);
        self.orders[order].chain = Some(chain);
        self.order(order, StatusCode::OK)
    }

    fn chain(&self, names: &[String], csr: &[u8], now: u64) -> String {
        if self.fault == Fault::NoChain {
            return "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
        }
        let names = match self.fault {
            Fault::OtherName => vec!["other.example".to_owned()],
            _ => names.to_vec(),
        };
        let mut params = CertificateParams::new(names).expect("names");
        params.use_authority_key_identifier_extension = true;
        let begin = UNIX_EPOCH + Duration::from_secs(now);
        params.not_before = begin.into();
        params.not_after = (begin + self.lifetime).into();
        // The certificate's identifier has when it began, and which one it is.
        let number = u64::try_from(self.orders.len()).unwrap_or_default();
        let serial = [number.to_be_bytes(), now.to_be_bytes()].concat();
        params.serial_number = Some(serial.into());
        let own = KeyPair::generate().expect("a key");
        let signed = match self.fault {
            Fault::OtherKey => params.signed_by(&own, &self.issuer),
            _ => params.signed_by(&RequestedKey::of(csr), &self.issuer),
        };
        signed.expect("signed").pem()
    }
}

/// The key of a request for a certificate, an uncompressed point of P-256.
struct RequestedKey(Vec<u8>);

impl RequestedKey {
    fn of(csr: &[u8]) -> Self {
        const BEFORE: [u8; 3] = [0x03, 0x42, 0x00];
        let at = csr.windows(BEFORE.len()).position(|bytes| bytes == BEFORE).expect("a key");
        Self(csr[at + BEFORE.len()..][..65].to_vec())
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

fn reply(status: StatusCode, body: &str) -> Response<Bytes> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    Response::builder().status(status).body(body).expect("a response")
}

fn problem(status: StatusCode, kind: &str, detail: &str) -> Response<Bytes> {
    let kind = format!("urn:ietf:params:acme:error:{kind}");
    let body = json!({ "type": kind, "detail": detail, "status": status.as_u16() });
    reply(status, &body.to_string())
}
