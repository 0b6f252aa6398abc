//! Upstreams that speak TLS, and the certificates for them.

use super::PATIENCE;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio_rustls::rustls::{
    HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};

/// An authority that signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Writes its certificate to `FILE.pem` in `folder`.
    pub(crate) fn write(&self, folder: &Path, file: &str) {
        fs::write(folder.join(format!("{file}.pem")), self.0.pem()).expect("written");
    }

    /// Writes `FILE.pem` and `FILE.key` with a certificate for `names`, which `edit` changes before
    /// it is signed.
    pub(crate) fn sign(
        &self,
        folder: &Path,
        file: &str,
        names: &[&str],
        edit: impl Fn(&mut CertificateParams),
    ) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        edit(&mut params);
        let key = KeyPair::generate().expect("a key");
        let made = params.signed_by(&key, &self.0).expect("a certificate");
        fs::write(folder.join(format!("{file}.pem")), made.pem()).expect("written");
        fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).expect("written");
    }
}

/// What a server saw of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub server_name: Option<String>,
    pub is_resumed: bool,
    /// The client's own certificate, if it showed one.
    pub client: Option<CertificateDer<'static>>,
}

/// A server of HTTP/1.1 over TLS.
pub(crate) struct TlsServer {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
}

impl TlsServer {
    /// Answers each request with the fields `more` and the path that was asked for.
    pub(crate) fn start(config: ServerConfig, more: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let stop = Arc::<AtomicBool>::default();
        let config = Arc::new(config);
        let noted = Arc::clone(&seen);
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { return };
                let config = Arc::clone(&config);
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || serve(stream, config, &noted, more));
            }
        });
        Self { address, seen, stop }
    }

    /// Its URL by name.
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// What it has seen of the connections whose handshake ended, in their order.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

/// Returns what a server with the certificate `FILE.pem` runs by. With `clients` it lets only
/// those in whose certificate `CLIENTS.pem` has signed.
pub(crate) fn server_config(folder: &Path, file: &str, clients: Option<&str>) -> ServerConfig {
    let path = |file: &str, end: &str| folder.join(format!("{file}.{end}"));
    let chain = CertificateDer::pem_file_iter(path(file, "pem")).expect("a file");
    let chain = chain.map(|certificate| certificate.expect("a certificate")).collect();
    let key = PrivateKeyDer::from_pem_file(path(file, "key")).expect("a key");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("known versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_file(path(clients, "pem")).expect("a certificate");
            roots.add(root).expect("added");
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    builder.with_single_cert(chain, key).expect("a pair")
}

/// Returns what a server with this chain runs by, whatever it looks like and whoever's `key` is. It
/// speaks TLS 1.2 alone, or 1.3 alone.
pub(crate) fn config_of(
    chain: Vec<CertificateDer<'static>>,
    key: &KeyPair,
    is_tls12: bool,
) -> ServerConfig {
    let provider = aws_lc_rs::default_provider();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let key = provider.key_provider.load_private_key(key).expect("a key");
    let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let version = if is_tls12 { &TLS12 } else { &TLS13 };
    ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("a known version")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown))
}

fn serve(
    mut stream: TcpStream,
    config: Arc<ServerConfig>,
    seen: &Mutex<Vec<Seen>>,
    more: &str,
) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE * 3)).ok()?;
    let mut session = ServerConnection::new(config).ok()?;
    while session.is_handshaking() {
        session.complete_io(&mut stream).ok()?;
    }
    seen.lock().expect("no panic").push(Seen {
        server_name: session.server_name().map(str::to_owned),
        is_resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        client: session
            .peer_certificates()
            .and_then(|all| all.first())
            .map(|certificate| certificate.clone().into_owned()),
    });
    let mut stream = BufReader::new(StreamOwned::new(session, stream));
    loop {
        let mut line = String::new();
        let mut length = 0;
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let path = line.split(' ').nth(1)?.to_owned();
        loop {
            let mut field = String::new();
            stream.read_line(&mut field).ok().filter(|read| *read > 0)?;
            if field == "\r\n" {
                break;
            }
            if let Some(value) = field.strip_prefix("content-length: ") {
                length = value.trim().parse().ok()?;
            }
        }
        let read = std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).ok()?;
        let body = format!("{path} {read}");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{more}\r\n", body.len());
        stream.get_mut().write_all((head + &body).as_bytes()).ok()?;
        stream.get_mut().flush().ok()?;
        if more.contains("close") {
            stream.get_mut().conn.send_close_notify();
            return stream.get_mut().flush().ok();
        }
    }
}
