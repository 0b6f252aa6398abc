//! TLS to the servers of an upstream: which certificates the gateway trusts, and which it shows.

use super::{
    certificate::{self, Certificate},
    server_verifier::{ListedNames, ServerVerifier},
};
use crate::config::{
    decode::At,
    diagnostics::{Problem, SourceSpan, quoted},
    read::source::Files,
    spec::{TlsOptions, UpstreamProtocol},
};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName},
    sign::SingleCertAndKey,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// The protocols that servers are offered (ALPN).
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The most servers whose sessions an upstream remembers.
const SESSIONS: usize = 256;

/// The TLS of connections to an upstream's servers. Workers share one, so that a session begun
/// by one is resumed by another. It is kept over reloads while nothing of it changes.
#[derive(Debug)]
pub struct UpstreamTls {
    config: Arc<ClientConfig>,
    /// The same without HTTP/2.
    config_of_http1: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    may_end_unnoticed: bool,
    /// The certificate that the gateway shows, if it does.
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
        https: SourceSpan,
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

        Ok(Self {
            config: Arc::new(config),
            config_of_http1,
            server_name,
            may_end_unnoticed: options.may_end_unnoticed,
            identity,
            print,
        })
    }

    /// Returns what a session is begun with, in which HTTP/1.1 alone is spoken.
    pub fn config_of_http1(&self) -> &Arc<ClientConfig> {
        &self.config_of_http1
    }

    /// Returns what a session is begun with.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// Returns whether a response may end with a connection that ends without `close_notify`.
    pub fn may_end_unnoticed(&self) -> bool {
        self.may_end_unnoticed
    }

    /// Returns the name that the certificate of the server at `host` must have; `None` if there can
    /// be no such name.
    pub fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        self.server_name.clone().or_else(|| ServerName::try_from(host.to_owned()).ok())
    }

    /// Returns what the gateway shows of itself, if it does.
    pub(in crate::config) fn identity(&self) -> Option<&Certificate> {
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

fn trusted(options: &TlsOptions, files: &Files, https: SourceSpan) -> Result<Trusted, Problem> {
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
        let message = format!("{} is not a name that a certificate can have", quoted(&text.value));
        Problem::error(text.span, message).help("write a host, as in `shop.internal`")
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
    options.may_end_unnoticed.hash(&mut hasher);
    hasher.finish()
}

fn client_config(
    trusted: Trusted,
    identity: Option<&Certificate>,
) -> Result<ClientConfig, Box<dyn core::error::Error>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = match trusted {
        Trusted::Anyone => ServerVerifier::trusting_all(&provider),
        Trusted::Roots(roots, listed) => {
            ServerVerifier::new(roots, listed, ListedNames::Own, &provider)?
        }
    };
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
