//! The file as written: every leaf read, and with its place. Whether the values make sense together
//! is the compiler's question.

mod breaker;
mod overrides;
mod route;
mod rule;
mod store;

pub(super) use breaker::BreakerSpec;
pub(super) use overrides::{OverrideSpec, WhenSpec};
pub(super) use route::{FieldSpec, MatchSpec, PathSpec, RouteSpec};
pub(super) use rule::{
    CostSpec, ExceptSpec, KeySpecs, PaceSpec, PacingSpec, PrioritySpec, RuleKind, RuleSpec,
    ScopeSpec, Windows,
};
pub use rule::{OnMissing, OnStoreError};
pub(super) use store::StoreSpec;

use super::{
    decode::{At, Decoder, Fields},
    node::{Content, Node, Place},
    problem::{Problem, quoted},
    settings::{AccessLog, ClientTimeouts, Limits, RateLimitHeaders},
    snapshot::AnswerLimits,
    values::{self, Endpoint},
    vocabulary::tables,
};
use http::HeaderValue;
use ipnet::IpNet;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// `gateway.yaml`.
#[derive(Debug)]
pub(super) struct FileSpec {
    pub listeners: Vec<ListenerSpec>,
    pub upstreams: Vec<UpstreamSpec>,
    pub routes: Vec<RouteSpec>,
    pub admin: Option<At<SocketAddr>>,
    pub trusted_proxies: Vec<IpNet>,
    pub timeouts: Option<ClientTimeouts>,
    pub limits: Option<Limits>,
    pub headers: Option<RateLimitHeaders>,
    pub explain_headers: bool,
    pub via: Option<HeaderValue>,
    pub access_log: Option<At<AccessLog>>,
    pub workers: Option<u64>,
    pub drain_timeout: Option<Duration>,
    pub store: Option<StoreSpec>,
    /// What the mark `end` says, if it is there.
    pub end: Option<bool>,
}

/// A listener.
#[derive(Debug)]
pub(super) struct ListenerSpec {
    pub name: Option<At<Arc<str>>>,
    pub listen: Option<At<SocketAddr>>,
    /// `None`: cleartext.
    pub certificates: Option<Vec<CertificateSpec>>,
    /// The files of certificates as they are written, whether they are read or not.
    pub names: Vec<PathBuf>,
}

/// The two files of a certificate.
#[derive(Debug)]
pub(super) struct CertificateSpec {
    pub cert: At<PathBuf>,
    pub key: At<PathBuf>,
}

/// An upstream.
#[derive(Debug)]
pub(super) struct UpstreamSpec {
    pub place: Place,
    pub name: Option<At<Arc<str>>>,
    pub servers: Vec<ServerSpec>,
    pub balance: Option<Balance>,
    pub connect_timeout: Option<Duration>,
    pub idle_timeout: Option<Duration>,
    pub max_idle: Option<u64>,
    pub limits: Option<AnswerLimits>,
}

/// A server of an upstream.
#[derive(Debug)]
pub(super) struct ServerSpec {
    pub endpoint: At<Endpoint>,
    pub weight: u64,
}

/// How an upstream picks one of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// In turn, by weight.
    RoundRobin,
    /// The less busy of two, both picked by weight.
    LeastRequest,
    /// By weighted chance.
    Random,
}

impl Balance {
    /// Returns its word in the file.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequest => "least_request",
            Self::Random => "random",
        }
    }
}

impl FileSpec {
    /// Reads the tree of a file whose relative names are meant from `folder`.
    pub(super) fn read<'s>(d: &mut Decoder<'s>, root: &Node<'s>, folder: &Path) -> Option<Self> {
        let f = d.fields(root, &tables::FILE)?;
        let within = |text: &str| file(text, folder);
        let access_log = f.leaf(d, "access_log", |text| match text {
            "off" => Ok(AccessLog::Off),
            "stdout" => Ok(AccessLog::Stdout),
            path => within(path).map(AccessLog::File),
        });
        let listeners = f.list(d, "listeners", |d, node| ListenerSpec::read(d, node, folder));
        let upstreams = f.list(d, "upstreams", UpstreamSpec::read);
        d.upstream =
            upstreams.iter().find_map(|upstream| Some(upstream.name.as_ref()?.value.clone()));
        Some(Self {
            listeners,
            upstreams,
            routes: f.list(d, "routes", RouteSpec::read),
            admin: f.map(d, "admin").and_then(|f| f.leaf(d, "listen", values::address)),
            trusted_proxies: plain(f.several(d, "trusted_proxies", values::network)),
            timeouts: f.map_or_defaults(d, "timeouts").and_then(|f| client_timeouts(d, &f)),
            limits: f.map_or_defaults(d, "limits").and_then(|f| limits(d, &f)),
            headers: f
                .word(
                    d,
                    "headers",
                    &[RateLimitHeaders::Draft, RateLimitHeaders::Legacy, RateLimitHeaders::Off],
                )
                .map(|at| at.value),
            explain_headers: f.flag(d, "explain_headers").is_some_and(|at| at.value),
            via: f.leaf(d, "via", via).and_then(|at| at.value),
            access_log,
            workers: f.integer(d, "workers").map(|at| at.value),
            drain_timeout: f.duration(d, "drain_timeout").map(|at| at.value),
            store: f.map(d, "store").map(|f| StoreSpec::read(d, &f, folder)),
            end: end(d, root, &f),
        })
    }
}

impl FileSpec {
    /// Returns the file as if it named no certificates.
    pub(super) fn without_certificates(mut self) -> Self {
        for listener in &mut self.listeners {
            listener.certificates = None;
        }
        if let Some(store) = &mut self.store {
            store.ca = None;
        }
        self
    }
}

impl ListenerSpec {
    fn read<'s>(d: &mut Decoder<'s>, node: &Node<'s>, folder: &Path) -> Option<Self> {
        let f = d.fields(node, &tables::LISTENER)?;
        let certificates = f.map(d, "tls").map(|tls| {
            tls.list(d, "certificates", |d, node| {
                let f = d.fields(node, &tables::CERTIFICATE)?;
                let cert = f.leaf(d, "cert", |text| file(text, folder));
                let key = f.leaf(d, "key", |text| file(text, folder));
                Some(CertificateSpec { cert: cert?, key: key? })
            })
        });
        let written = |it: &CertificateSpec| {
            it.cert.value.strip_prefix(folder).unwrap_or(&it.cert.value).to_owned()
        };
        Some(Self {
            name: f.leaf(d, "name", values::name),
            listen: f.leaf(d, "listen", values::address),
            names: certificates.iter().flatten().map(written).collect(),
            certificates,
        })
    }
}

impl UpstreamSpec {
    fn read<'s>(d: &mut Decoder<'s>, node: &Node<'s>) -> Option<Self> {
        let f = d.fields(node, &tables::UPSTREAM)?;
        let servers = f.list(d, "servers", |d, node| {
            let f = d.fields(node, &tables::SERVER)?;
            let endpoint = f.leaf(d, "url", values::url);
            let weight = f.integer(d, "weight");
            Some(ServerSpec { endpoint: endpoint?, weight: weight?.value })
        });
        let balances = [Balance::RoundRobin, Balance::LeastRequest, Balance::Random];
        Some(Self {
            place: f.place,
            name: f.leaf(d, "name", values::name),
            servers,
            balance: f.word(d, "balance", &balances).map(|at| at.value),
            connect_timeout: f.duration(d, "connect_timeout").map(|at| at.value),
            idle_timeout: f.duration(d, "idle_timeout").map(|at| at.value),
            max_idle: f.integer(d, "max_idle").map(|at| at.value),
            limits: f.map_or_defaults(d, "limits").and_then(|f| answer_limits(d, &f)),
        })
    }
}

fn client_timeouts<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<ClientTimeouts> {
    let mut duration = |name| f.duration(d, name).map(|at| at.value);
    let (header_read, keep_alive) = (duration("header_read"), duration("keep_alive"));
    let (tls_handshake, write) = (duration("tls_handshake"), duration("write"));
    Some(ClientTimeouts {
        header_read: header_read?,
        keep_alive: keep_alive?,
        tls_handshake: tls_handshake?,
        write: write?,
    })
}

/// The smallest header that a browser's ordinary request fits into, and hyper's smallest buffer.
const LEAST_HEADER_BYTES: u64 = 8 * 1024;

fn limits<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<Limits> {
    let small = |at: At<u64>| usize::try_from(at.value).unwrap_or(usize::MAX);
    let header_bytes = header_bytes(d, f);
    let (headers, body) = (f.integer(d, "headers"), f.size(d, "body"));
    let connections = f.integer(d, "connections");
    let upload_buffers = f.size(d, "upload_buffers");
    Some(Limits {
        header_bytes: header_bytes?,
        headers: headers.map(small)?,
        body: body?.value,
        connections: connections.map(small)?,
        upload_buffers: upload_buffers?.value,
    })
}

fn answer_limits<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<AnswerLimits> {
    let (header_bytes, headers) = (header_bytes(d, f), f.integer(d, "headers"));
    let headers = headers.and_then(|at| usize::try_from(at.value).ok());
    Some(AnswerLimits { header_bytes: header_bytes?, headers: headers? })
}

fn header_bytes<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<usize> {
    let at = f.size(d, "header_bytes")?;
    if at.value < LEAST_HEADER_BYTES {
        let message = format!("`header_bytes` cannot be {}", at.value);
        d.problems.add(Problem::error(at.place, message).help("write at least `8KiB`"));
    }
    usize::try_from(at.value).ok()
}

/// Reads what requests get as `Via`.
fn via(text: &str) -> Result<Option<HeaderValue>, values::Invalid> {
    let name = match text {
        "off" => return Ok(None),
        "on" => "flowgate",
        name => name,
    };
    let is_name = values::header_name(name).is_ok();
    match HeaderValue::try_from(format!("1.1 {name}")) {
        Ok(value) if is_name => Ok(Some(value)),
        _ => values::invalid(
            format!("{} is not a name for `Via`", quoted(text)),
            "write `on`, `off`, or a word without spaces, as in `edge-1`",
        ),
    }
}

/// Reads the mark `end`, which means nothing unless it is the last line.
fn end<'s>(d: &mut Decoder<'s>, root: &Node<'s>, f: &Fields<'_, 's>) -> Option<bool> {
    let at = f.flag(d, "end")?;
    if let Content::Map(entries) = &root.content
        && let (Some((last, _)), Some(place)) = (entries.last(), f.key_place("end"))
        && last.place != place
    {
        let problem = Problem::error(place, "`end` is not the last key of the file")
            .also(last.place, "this comes after it")
            .help("move it to the last line: it says that the file is whole");
        d.problems.add(problem);
    }
    Some(at.value)
}

/// Reads a file name; a relative one is meant from `folder`.
fn file(text: &str, folder: &Path) -> Result<PathBuf, values::Invalid> {
    if text.is_empty() || text.contains('\0') {
        let message = format!("{} is not a file name", quoted(text));
        return values::invalid(message, "write a path, as in `certs/site.pem`");
    }
    Ok(folder.join(text))
}

/// Drops the places.
fn plain<T>(values: Vec<At<T>>) -> Vec<T> {
    values.into_iter().map(|at| at.value).collect()
}
