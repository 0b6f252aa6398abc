//! TLS to the servers of an upstream: which certificates the gateway trusts, and which it shows.

use super::certificate::{self, Certificate};
use crate::config::{
    decode::At,
    diagnostics::{Place, Problem, quoted},
    read::source::Files,
    spec::{TlsOptions, UpstreamProtocol},
};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
    sign::SingleCertAndKey,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// What is offered to servers (ALPN).
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// How many servers' sessions an upstream remembers.
const SESSIONS: usize = 256;

/// How connections to an upstream's servers are secured. Workers share one, so that a session begun
/// by one is resumed by another. It is kept over reloads while nothing of it changes.
#[derive(Debug)]
pub struct UpstreamTls {
    config: Arc<ClientConfig>,
    /// The same without HTTP/2.
    config_of_http1: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    /// What the gateway shows of itself, if it does.
    identity: Option<Certificate>,
    /// Stands for all that it is made of, the contents of the files included.
    print: u64,
}

impl UpstreamTls {
    /// Makes it of the file's options and the files that they name. `https` is where the file has
    /// the first server that needs it.
    ///
    /// # Errors
    /// Everything that is wrong, each at its value.
    pub(in crate::config) fn load(
        options: &TlsOptions,
        protocol: UpstreamProtocol,
        files: &Files,
        https: Place,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let trusted = trusted(options, files, https).map_err(|problem| problems.push(problem));
        let identity = options.identity.as_ref().map(|named| Certificate::load(named, files));
        let identity = identity.transpose().map_err(|found| {
            // None of these is made where it is missing.
            problems.extend(found.into_iter().map(|problem| problem.missing_file(false)));
        });
        let server_name = options.server_name.as_ref().map(server_name).transpose();
        let server_name = server_name.map_err(|problem| problems.push(problem));
        let (Ok(trusted), Ok(identity), Ok(server_name)) = (trusted, identity, server_name) else {
            return Err(problems);
        };
        let print = print(&trusted, identity.as_ref(), options, files);
        let mut config = client_config(trusted, identity.as_ref())
            .map_err(|error| vec![Problem::error(https, format!("TLS cannot be used: {error}"))])?;
        config.alpn_protocols = vec![HTTP1.to_vec()];
        let config_of_http1 = Arc::new(config.clone());
        config.alpn_protocols = match protocol {
            UpstreamProtocol::Auto => vec![HTTP2.to_vec(), HTTP1.to_vec()],
            UpstreamProtocol::H1 => vec![HTTP1.to_vec()],
            UpstreamProtocol::H2 => vec![HTTP2.to_vec()],
        };
        Ok(Self { config: Arc::new(config), config_of_http1, server_name, identity, print })
    }

    /// Returns what a session is begun with, in which HTTP/1.1 alone is spoken.
    pub fn config_of_http1(&self) -> &Arc<ClientConfig> {
        &self.config_of_http1
    }

    /// Returns what a session is begun with.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// Returns the name that the certificate of the server at `host` must have; `None` if there can
    /// be no such name.
    pub fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        self.server_name.clone().or_else(|| ServerName::try_from(host.to_owned()).ok())
    }

    /// Returns what the gateway shows of itself, if it does.
    pub(super) fn identity(&self) -> Option<&Certificate> {
        self.identity.as_ref()
    }
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl Eq for UpstreamTls {}

/// Whose certificates are trusted.
enum Trusted {
    /// Those that these have signed, and themselves.
    Roots(Arc<RootCertStore>, Vec<CertificateDer<'static>>),
    Anyone,
}

fn trusted(options: &TlsOptions, files: &Files, https: Place) -> Result<Trusted, Problem> {
    if options.is_insecure {
        return Ok(Trusted::Anyone);
    }
    if let Some(ca) = &options.ca {
        let list = certificate::authorities(ca, files)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(list.iter().cloned());
        return Ok(Trusted::Roots(Arc::new(roots), list));
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        let message = format!("this system trusts no certificates{why}");
        let help = "install `ca-certificates`, or write `tls: { ca: FILE }` at the upstream";
        return Err(Problem::error(https, message).help(help));
    }
    Ok(Trusted::Roots(Arc::new(roots), Vec::new()))
}

/// Reads the name that a server's certificate must have.
fn server_name(text: &At<String>) -> Result<ServerName<'static>, Problem> {
    ServerName::try_from(text.value.clone()).map_err(|_| {
        let message = format!("{} is no name that a certificate can have", quoted(&text.value));
        Problem::error(text.place, message).help("write a host, as in `shop.internal`")
    })
}

/// Returns a number that stands for everything that connections are secured by.
fn print(
    trusted: &Trusted,
    identity: Option<&Certificate>,
    options: &TlsOptions,
    files: &Files,
) -> u64 {
    let mut hasher = DefaultHasher::new();
    match trusted {
        Trusted::Anyone => hasher.write_u8(0),
        Trusted::Roots(roots, list) => {
            hasher.write_u8(1);
            for root in &roots.roots {
                root.subject.as_ref().hash(&mut hasher);
                root.subject_public_key_info.as_ref().hash(&mut hasher);
            }
            list.hash(&mut hasher);
        }
    }
    identity.map(|identity| &identity.key.cert).hash(&mut hasher);
    let key = options.identity.as_ref().and_then(|named| files.get(&named.key.value));
    key.and_then(|key| key.as_ref().ok()).hash(&mut hasher);
    options.server_name.as_ref().map(|name| &name.value).hash(&mut hasher);
    hasher.finish()
}

fn client_config(
    trusted: Trusted,
    identity: Option<&Certificate>,
) -> Result<ClientConfig, Box<dyn core::error::Error>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Verifier::new(trusted, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let shown = SingleCertAndKey::from(Arc::clone(&identity.key));
            builder.with_client_cert_resolver(Arc::new(shown))
        }
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

/// Verifies servers as rustls does, with one more way: a certificate that is itself in the file
/// `ca` is trusted, even if it is marked as an authority's, as those are that `openssl req -x509`
/// makes.
#[derive(Debug)]
struct Verifier {
    /// `None`: every certificate will do.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Those of the file `ca`.
    listed: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(
        trusted: Trusted,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Box<dyn core::error::Error>> {
        let algorithms = provider.signature_verification_algorithms;
        let Trusted::Roots(roots, listed) = trusted else {
            return Ok(Self { inner: None, listed: Vec::new(), algorithms });
        };
        let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
        Ok(Self { inner: Some(inner.build()?), listed, algorithms })
    }
}

/// Reports whether a certificate was rejected only because it is an authority's. Its time was
/// checked before.
fn is_of_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = error else {
        return false;
    };
    matches!(other.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        let verified = inner.verify_server_cert(own, chain, name, ocsp, now);
        match verified {
            Err(error) if is_of_authority(&error) && self.listed.contains(own) => {
                verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, own, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, own, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
