//! Servers and clients of every protocol, and a gateway between them.

use super::{
    Gateway,
    tls_server::{Authority, server_config},
    wire::{Wire, client_config},
};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};

/// A client of HTTP/2 begins with it.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The flag of settings that are acknowledged.
pub(crate) const ACK: u8 = 1;

/// A protocol, with or without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    pub is_http2: bool,
    pub is_tls: bool,
}

/// All of them.
pub(crate) const PROTOCOLS: [Protocol; 4] = [
    Protocol { is_http2: false, is_tls: false },
    Protocol { is_http2: false, is_tls: true },
    Protocol { is_http2: true, is_tls: false },
    Protocol { is_http2: true, is_tls: true },
];

impl Protocol {
    /// Its name in paths.
    pub(crate) fn name(self) -> &'static str {
        match (self.is_http2, self.is_tls) {
            (false, false) => "h1",
            (false, true) => "h1s",
            (true, false) => "h2",
            (true, true) => "h2s",
        }
    }

    /// Its name in TLS.
    pub(crate) fn alpn(self) -> &'static str {
        if self.is_http2 { "h2" } else { "http/1.1" }
    }
}

/// Starts a gateway with the listeners `web` and, over TLS, `secure`. Its paths are the names of the
/// servers' protocols. `more` is added to upstreams with TLS.
pub(crate) fn start(
    folder: tempfile::TempDir,
    servers: &[(Protocol, SocketAddr)],
    more: &str,
) -> Gateway {
    let mut upstreams = String::new();
    let mut routes = String::new();
    for (protocol, address) in servers {
        let name = protocol.name();
        let port = address.port();
        let url = if protocol.is_tls { "https://localhost" } else { "http://127.0.0.1" };
        let spoken = if protocol.is_http2 { "h2" } else { "h1" };
        let tls =
            if protocol.is_tls { format!(", tls: {{ ca: ca.pem{more} }}") } else { String::new() };
        let upstream = format!(
            "  - {{ name: {name}, servers: [{{ url: '{url}:{port}' }}], protocol: {spoken}{tls} }}\n"
        );
        upstreams.push_str(&upstream);
        let route =
            format!("  - {{ name: {name}, match: {{ path: /{name} }}, upstream: {name} }}\n");
        routes.push_str(&route);
    }
    let yaml = format!(
        "workers: 1\nlisteners:\n  - {{ name: web, listen: 127.0.0.1:0 }}\n\
         \x20 - {{ name: secure, listen: 127.0.0.1:0, tls: {{ certificates: [{{ cert: own.pem, key: own.key }}] }} }}\n\
         admin: {{ listen: 127.0.0.1:0 }}\nupstreams:\n{upstreams}routes:\n{routes}"
    );
    Gateway::start_in(folder, &yaml, &[])
}

/// Makes a folder with a certificate, `own`, of an authority, `ca`.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new("the authority");
    authority.write(folder.path(), "ca");
    authority.sign(folder.path(), "own", &["localhost"], |_| {});
    folder
}

/// Serves each connection to a new server of `protocol` on a thread of its own.
pub(crate) fn listen(
    folder: &Path,
    protocol: Protocol,
    serve: impl Fn(Wire) -> io::Result<()> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let tls = server_tls(folder, protocol);
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(socket) = socket else { return };
            let tls = tls.clone();
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || {
                // Connections end as a test has them end.
                let _ended = serve(Wire::accepted(socket, tls.as_ref()));
            });
        }
    });
    address
}

fn server_tls(folder: &Path, protocol: Protocol) -> Option<Arc<ServerConfig>> {
    protocol.is_tls.then(|| {
        let mut config = server_config(folder, "own", None);
        config.alpn_protocols = vec![protocol.alpn().as_bytes().to_vec()];
        Arc::new(config)
    })
}

/// What clients run by that trust the authority.
pub(crate) struct ClientTls([Arc<ClientConfig>; 2]);

impl ClientTls {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(["http/1.1", "h2"].map(|protocol| client_config(folder, "ca", protocol)))
    }

    /// Connects to a gateway by `protocol`.
    pub(crate) fn connect(&self, gateway: &Gateway, protocol: Protocol) -> Wire {
        let listener = if protocol.is_tls { "secure" } else { "web" };
        let config = &self.0[usize::from(protocol.is_http2)];
        Wire::connect(gateway.address(listener), protocol.is_tls.then_some(config))
    }
}
