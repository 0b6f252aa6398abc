//! Connections to a store of any kind.

use crate::config::{Secret, Store as Settings, StoreKind};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind,
    TlsCertificates, TlsMode, Value,
    aio::MultiplexedConnection,
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
    cluster_routing::SingleNodeRoutingInfo,
    io::tcp::TcpSettings,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use std::fs;
use tokio::task::JoinSet;

/// A connection that many calls share. Calls are answered in their order.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    /// One to each node.
    Cluster(ClusterConnection),
}

impl Connection {
    /// Calls, and waits for the answer: without a limit, so that the caller must have one.
    pub(super) async fn query(&mut self, call: &Cmd) -> RedisResult<Value> {
        match self {
            Self::One(connection) => call.query_async(connection).await,
            Self::Cluster(connection) => redirected(connection, call).await,
        }
    }

    /// Makes calls in one round trip, or one after the other to a cluster, whose nodes may each
    /// have some. Without a limit, too. Returns what was answered to each, in their order.
    pub(super) async fn query_all(
        &mut self,
        calls: &[Cmd],
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        match self {
            Self::One(connection) => {
                let mut pipeline = Pipeline::with_capacity(calls.len());
                pipeline.ignore_errors();
                for call in calls {
                    pipeline.add_command(call.clone());
                }
                pipeline.query_async(connection).await
            }
            Self::Cluster(connection) => {
                let mut answers = Vec::with_capacity(calls.len());
                for call in calls {
                    answers.push(redirected(connection, call).await);
                }
                Ok(answers)
            }
        }
    }
}

/// Connects, without a limit of time on the whole.
pub(super) async fn dial(settings: &Settings) -> RedisResult<Connection> {
    // Limits of time are the caller's.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let client = match &settings.kind {
        StoreKind::Cluster => return cluster(settings).await.map(Connection::Cluster),
        StoreKind::Sentinel { primary, user, password } => {
            let login = (user.as_deref(), password.as_ref());
            sentinels(settings, primary, login).await?
        }
        StoreKind::Single => {
            let Some(node) = infos(settings)?.into_iter().next() else {
                return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no node")));
            };
            match certificates(settings)? {
                Some(certificates) => Client::build_with_tls(node, certificates)?,
                None => Client::open(node)?,
            }
        }
    };
    client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::One)
}

/// Calls the node that has the keys, and follows if that sends us to another: it has done nothing then.
async fn redirected(connection: &mut ClusterConnection, call: &Cmd) -> RedisResult<Value> {
    match call.query_async(connection).await {
        // The client has asked who has them now.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) => {
            call.query_async(connection).await
        }
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
            asking(connection, call, error).await
        }
        answer => answer,
    }
}

/// Calls the node that takes a slot over, which has these keys already, and must hear that we know.
async fn asking(
    connection: &mut ClusterConnection,
    call: &Cmd,
    sent: RedisError,
) -> RedisResult<Value> {
    let node = sent.redirect_node().and_then(|(node, _)| node.rsplit_once(':'));
    let Some((host, Ok(port))) = node.map(|(host, port)| (host.to_owned(), port.parse())) else {
        return Err(sent);
    };
    let mut calls = Pipeline::with_capacity(2);
    calls.cmd("ASKING").add_command(call.clone());
    let node = SingleNodeRoutingInfo::ByAddress { host, port };
    match connection.route_pipeline(calls, 0, 2, node).await {
        Ok(answers) => answers.into_iter().nth(1).unwrap_or(Value::Nil).extract_error(),
        // One that has no slots yet: that is no reason to give the others up.
        Err(error) if error.kind() == ErrorKind::ClusterConnectionNotFound => Err(sent),
        Err(error) => Err(error),
    }
}

async fn cluster(settings: &Settings) -> RedisResult<ClusterConnection> {
    // The nodes that are named, then those that they name: one that hangs among them must leave
    // time for the others.
    let part = settings.connect_timeout / 4;
    let mut builder = ClusterClientBuilder::new(infos(settings)?)
        .tcp_settings(tcp())
        .connection_timeout(part)
        .response_timeout(part.max(settings.timeout.min(settings.connect_timeout)))
        // It would send again what a node may have done before its connection broke, which then
        // counts twice. What it has not done for sure, `redirected` sends again.
        .retries(0);
    if let Some(certificates) = certificates(settings)? {
        builder = builder.certs(certificates);
    }
    builder.build()?.get_async_connection().await
}

/// Asks the sentinels, who let `login` in, for the primary of this name: all at once, each by a
/// client of its own, so that the first answer counts and none that hangs is waited for.
async fn sentinels(
    settings: &Settings,
    primary: &str,
    login: (Option<&str>, Option<&Secret>),
) -> RedisResult<Client> {
    let mut asked = JoinSet::new();
    for (host, port) in &settings.nodes {
        let mut client = sentinel(settings, addr(settings, host, *port), primary, login)?;
        asked.spawn(async move { client.async_get_client().await });
    }
    let mut failure = RedisError::from((ErrorKind::InvalidClientConfig, "no sentinel answers"));
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => failure = error,
            // The runtime ends.
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Returns what asks one sentinel.
fn sentinel(
    settings: &Settings,
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

fn infos(settings: &Settings) -> RedisResult<Vec<ConnectionInfo>> {
    let mut login = RedisConnectionInfo::default().set_db(settings.database);
    if let Some(user) = &settings.user {
        login = login.set_username(user);
    }
    if let Some(password) = &settings.password {
        login = login.set_password(password.reveal());
    }
    let info = |(host, port): &(String, u16)| {
        let info = addr(settings, host, *port).into_connection_info()?;
        Ok(info.set_tcp_settings(tcp()).set_redis_settings(login.clone()))
    };
    settings.nodes.iter().map(info).collect()
}

fn addr(settings: &Settings, host: &str, port: u16) -> ConnectionAddr {
    let host = host.to_owned();
    if settings.is_tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

/// Without it, one small packet may wait 40 ms for the other side to confirm the one before.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Reads the file of the certificates that are trusted, if there is one.
fn certificates(settings: &Settings) -> RedisResult<Option<TlsCertificates>> {
    let Some(file) = settings.ca.as_ref().filter(|_| settings.is_tls) else { return Ok(None) };
    Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(fs::read(file)?) }))
}
