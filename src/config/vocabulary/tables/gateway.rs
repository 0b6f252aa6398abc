//! The file itself, where clients connect, and the services behind.

use super::{TIMEOUT, integer, key, later, route::ROUTE, store::STORE, word};
use crate::config::vocabulary::{
    Default::{Absent, Required, Value, Words},
    Kind, Section,
};
use std::time::Duration;

/// `gateway.yaml` itself.
pub(in crate::config) static FILE: Section = Section {
    title: "the file",
    doc: "The whole file. `listeners`, `upstreams` and `routes` are needed, everything else has a default that is safe at the edge.",
    keys: &[
        key("listeners", Kind::List(&Kind::Section(&LISTENER)), Required, "Where clients connect."),
        key(
            "upstreams",
            Kind::List(&Kind::Section(&UPSTREAM)),
            Required,
            "The services behind the gateway.",
        ),
        key(
            "routes",
            Kind::List(&Kind::Section(&ROUTE)),
            Required,
            "Which request goes to which upstream, and how many may. The best match wins, not the first.",
        ),
        key(
            "admin",
            Kind::Section(&ADMIN),
            Absent,
            "Health, readiness, metrics and routes on a listener of their own.",
        ),
        key(
            "trusted_proxies",
            Kind::Several(&Kind::Network),
            Words("none"),
            "Whose `X-Forwarded-For` is believed: the proxies in front of this one.",
        ),
        key(
            "timeouts",
            Kind::Section(&CLIENT_TIMEOUTS),
            Absent,
            "How long a client's connection may take.",
        ),
        key("limits", Kind::Section(&LIMITS), Absent, "How much a client may send."),
        key(
            "headers",
            word(&["draft", "legacy", "off"]),
            Value("draft"),
            "Which headers tell a client its quota: `RateLimit` and `RateLimit-Policy` (draft), `X-RateLimit-*` as well (legacy), or none.",
        ),
        key(
            "explain_headers",
            Kind::Flag,
            Value("false"),
            "Adds `x-flowgate-rule` and `x-flowgate-reason` to rejections, which shows clients how the rules are named.",
        ),
        key(
            "via",
            Kind::Either(&word(&["off", "on"]), &Kind::Name),
            Value("off"),
            "Adds `Via: 1.1 flowgate` to requests, or `Via: 1.1 NAME`. nginx does not compress answers to requests that have it, unless `gzip_proxied` says so.",
        ),
        key(
            "access_log",
            Kind::Either(&word(&["off", "stdout"]), &Kind::File),
            Value("off"),
            "One JSON line a request, to `stdout` or to a file; USR1 reopens it.",
        ),
        key(
            "workers",
            integer(1, 1024),
            Words("one a core"),
            "Threads that serve requests. Read at start only.",
        ),
        key(
            "drain_timeout",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_hours(24) },
            Value("30s"),
            "How long a stopping gateway waits for requests in flight.",
        ),
        key(
            "store",
            Kind::Section(&STORE),
            Absent,
            "The Redis or Valkey that keeps what gateways share: the rules with `scope: cluster`. Read at start only.",
        ),
        key(
            "end",
            Kind::Flag,
            Absent,
            "The mark `end: true` as the last line. Once the file in force has it, a file without it is rejected as cut short.",
        ),
    ],
};

/// One listener.
pub(in crate::config) static LISTENER: Section = Section {
    title: "a listener",
    doc: "An address to accept connections on: HTTP/1.1 and HTTP/2, with TLS where `tls` says so. Listeners come and go with the file.",
    keys: &[
        key("name", Kind::Name, Required, "The listener's name in logs and metrics."),
        key(
            "listen",
            Kind::Address,
            Required,
            "IP address and port, as in `127.0.0.1:8080`. `:8080` or `8080` listens on every address, IPv4 and IPv6, as `[::]:8080` does; `0.0.0.0:8080` on every IPv4 address.",
        ),
        key(
            "tls",
            Kind::Section(&TLS),
            Absent,
            "Certificates; a listener without speaks cleartext.",
        ),
    ],
};

/// The TLS of a listener.
pub(in crate::config) static TLS: Section = Section {
    title: "the TLS of a listener",
    doc: "The client's server name picks the certificate, the first one where none fits. The files are watched and reloaded like this file.",
    keys: &[key(
        "certificates",
        Kind::List(&Kind::Section(&CERTIFICATE)),
        Required,
        "At least one certificate with its key.",
    )],
};

/// One certificate.
pub(in crate::config) static CERTIFICATE: Section = Section {
    title: "a certificate",
    doc: "Two PEM files. Names are relative to the folder of this file.",
    keys: &[
        key("cert", Kind::File, Required, "The certificate, followed by its intermediates."),
        key("key", Kind::File, Required, "Its private key."),
    ],
};

/// The admin listener.
pub(in crate::config) static ADMIN: Section = Section {
    title: "the admin listener",
    doc: "Serves `/healthz`, `/readyz`, `/metrics`, `/routes`, and `POST /reload`, which reads the configuration again. Whoever reaches it can do so, and read the rules: keep it on loopback or inside the network. Read at start only.",
    keys: &[key(
        "listen",
        Kind::Address,
        Value("127.0.0.1:9901"),
        "IP address and port, or a port alone for every address.",
    )],
};

/// The client's side of the clock.
pub(in crate::config) static CLIENT_TIMEOUTS: Section = Section {
    title: "the timeouts",
    doc: "Deadlines of a client's connection.",
    keys: &[
        key(
            "header_read",
            TIMEOUT,
            Value("10s"),
            "From the first byte of a request to the end of its header.",
        ),
        key(
            "keep_alive",
            TIMEOUT,
            Value("75s"),
            "How long a connection may idle between requests.",
        ),
        key(
            "tls_handshake",
            TIMEOUT,
            Value("10s"),
            "From the connection to the end of the TLS handshake.",
        ),
        key("write", TIMEOUT, Value("60s"), "How long a client may take no byte of its answer."),
    ],
};

/// The client's side of the scales.
pub(in crate::config) static LIMITS: Section = Section {
    title: "the limits",
    doc: "Sizes and counts beyond which a request is rejected.",
    keys: &[
        key(
            "header_bytes",
            Kind::Size { max: 1 << 20 },
            Value("32KiB"),
            "The whole header of a request: 431 beyond it. At least 8KiB.",
        ),
        key("headers", integer(1, 10_000), Value("100"), "How many header fields: 431 beyond it."),
        key(
            "body",
            Kind::Size { max: u64::MAX },
            Value("1GiB"),
            "The body of a request: 413 beyond it. A route's `body_limit` overrides it.",
        ),
        key(
            "connections",
            integer(1, 10_000_000),
            Value("100000"),
            "Client connections at once, all listeners together. Twice as many file descriptors are enough, and a few; \
             with fewer, no client is accepted while three quarters of them are in use.",
        ),
        key(
            "upload_buffers",
            Kind::Size { max: 1 << 40 },
            Value("256MiB"),
            "Memory for uploads over HTTP/2 that upstreams have not taken yet, all connections together. Beyond it, \
             a connection that holds 64KiB or more is not read.",
        ),
    ],
};

/// One upstream.
pub(in crate::config) static UPSTREAM: Section = Section {
    title: "an upstream",
    doc: "A service: one or more servers that answer alike, over HTTP/1.1 with kept connections.",
    keys: &[
        key("name", Kind::Name, Required, "What routes call it."),
        key("servers", Kind::List(&Kind::Section(&SERVER)), Required, "At least one server."),
        key(
            "balance",
            Kind::Word { today: &["round_robin", "least_request", "random"], later: &["hash"] },
            Value("round_robin"),
            "In turn by weight, the less busy of two picked by weight, or by weighted chance.",
        ),
        key("connect_timeout", TIMEOUT, Value("3s"), "How long a connection may take to open."),
        key(
            "idle_timeout",
            TIMEOUT,
            Value("4s"),
            "How long an idle connection is kept. Set it below the server's own limit, so that the server never closes first; a server that announces less by `Keep-Alive: timeout=` is given up 1s before that.",
        ),
        key(
            "max_idle",
            integer(0, 100_000),
            Value("256"),
            "Idle connections kept for each server by each worker.",
        ),
        key(
            "limits",
            Kind::Section(&ANSWER_LIMITS),
            Absent,
            "What the header of an answer may be: 502 beyond it.",
        ),
        later("health", "Active health checks."),
    ],
};

/// The upstream's side of the scales.
pub(in crate::config) static ANSWER_LIMITS: Section = Section {
    title: "the limits of an upstream",
    doc: "Sizes and counts beyond which an upstream's answer is not taken.",
    keys: &[
        key(
            "header_bytes",
            Kind::Size { max: 1 << 20 },
            Value("64KiB"),
            "The whole header of an answer. At least 8KiB.",
        ),
        key(
            "headers",
            integer(1, 10_000),
            Value("100"),
            "How many header fields. More than 100 cost each answer some memory and time.",
        ),
    ],
};

/// One server.
pub(in crate::config) static SERVER: Section = Section {
    title: "a server",
    doc: "One address of an upstream.",
    keys: &[
        key(
            "url",
            Kind::Url,
            Required,
            "`http://HOST:PORT`; a name is resolved when a connection opens.",
        ),
        key("weight", integer(1, 1000), Value("1"), "Its share beside the others."),
    ],
};
