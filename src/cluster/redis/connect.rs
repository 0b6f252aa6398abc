//! Connects to one server, or to the primary that sentinels name.

use crate::{
    clock::Clock,
    cluster::store::Store,
    config::{Secret, StoreSettings},
};
use core::time::Duration;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode, Value,
    aio::MultiplexedConnection,
    io::tcp::TcpSettings,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use std::{fs, sync::Arc};
use tokio::task::JoinSet;

/// Makes calls in one round trip, and returns their answers in order. Sets no limit of time: the
/// caller must.
pub(in crate::cluster) async fn query_all(
    connection: &mut MultiplexedConnection,
    calls: &[Cmd],
) -> RedisResult<Vec<RedisResult<Value>>> {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    pipeline.ignore_errors();
    for call in calls {
        pipeline.add_command(call.clone());
    }
    pipeline.query_async(connection).await
}

/// Connects to one server.
pub(super) async fn open(
    settings: &StoreSettings,
    host: &str,
    port: u16,
) -> RedisResult<MultiplexedConnection> {
    let mut login = RedisConnectionInfo::default().set_db(settings.database);
    if let Some(user) = &settings.user {
        login = login.set_username(user);
    }
    if let Some(password) = &settings.password {
        login = login.set_password(password.reveal());
    }
    open_as(settings, host, port, login).await
}

/// Connects to one server with this login.
pub(super) async fn open_as(
    settings: &StoreSettings,
    host: &str,
    port: u16,
    login: RedisConnectionInfo,
) -> RedisResult<MultiplexedConnection> {
    let server = addr(settings, host, port).into_connection_info()?;
    let server = server.set_tcp_settings(tcp()).set_redis_settings(login);
    let client = match certificates(settings)? {
        Some(certificates) => Client::build_with_tls(server, certificates)?,
        None => Client::open(server)?,
    };
    multiplexed(&client).await
}

pub(super) async fn multiplexed(client: &Client) -> RedisResult<MultiplexedConnection> {
    // The caller sets limits of time.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Asks all sentinels at once for the primary of this name. The first answer counts, so that no
/// sentinel that hangs delays the others.
pub(super) async fn first_named(
    settings: &StoreSettings,
    primary: &str,
    login: (Option<&str>, Option<&Secret>),
) -> RedisResult<Client> {
    let mut asked = JoinSet::new();
    for (host, port) in &settings.nodes {
        let mut client = sentinel(settings, addr(settings, host, *port), primary, login)?;
        asked.spawn(async move { client.async_get_client().await });
    }
    first(asked, "no sentinel answers").await
}

/// Returns the first answer, or else the last error; `silence` if there was no question.
pub(super) async fn first<T: 'static>(
    mut asked: JoinSet<RedisResult<T>>,
    silence: &'static str,
) -> RedisResult<T> {
    let mut failure = RedisError::from((ErrorKind::InvalidClientConfig, silence));
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => failure = error,
            // The runtime ends.
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Returns a client for one sentinel.
fn sentinel(
    settings: &StoreSettings,
    node: ConnectionAddr,
    primary: &str,
    login: (Option<&str>, Option<&Secret>),
) -> RedisResult<SentinelClient> {
    let mut builder = SentinelClientBuilder::new([node], primary, SentinelServerType::Master)?
        .set_client_to_redis_tcp_settings(tcp())
        .set_client_to_sentinel_tcp_settings(tcp())
        .set_client_to_redis_db(settings.database);
    if settings.is_tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_tls_mode(TlsMode::Secure);
    }

    let (user, password) = login;
    if let Some(user) = user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = password {
        builder = builder.set_client_to_sentinel_password(password.reveal());
    }

    if let Some(user) = &settings.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &settings.password {
        builder = builder.set_client_to_redis_password(password.reveal());
    }

    if let Some(certificates) = certificates(settings)? {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates);
    }

    builder.build()
}

fn addr(settings: &StoreSettings, host: &str, port: u16) -> ConnectionAddr {
    let host = host.to_owned();
    if settings.is_tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

/// Without `TCP_NODELAY` a small packet may wait 40 ms for the acknowledgement of the previous one.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Reads the trusted certificates, if the configuration names a file.
fn certificates(settings: &StoreSettings) -> RedisResult<Option<TlsCertificates>> {
    let Some(file) = settings.ca.as_ref().filter(|_| settings.is_tls) else { return Ok(None) };
    Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(fs::read(file)?) }))
}

/// The store, clock and limit that connecting to a server and the first call need.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) store: Arc<Store>,
    pub(super) clock: Clock,
    /// The longest that a request's call may take.
    pub(super) limit: Duration,
}
