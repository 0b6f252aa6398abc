//! The connections that make up one to the store, of any kind.

use super::{
    connect::{Caller, first_named, multiplexed, open},
    nodes::Nodes,
    sentinels::{self, Primary},
};
use crate::config::StoreKind;
use redis::{
    Cmd, ConnectionAddr, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
    aio::MultiplexedConnection,
};

/// Connections that many calls share. Each server answers its calls in their order.
#[derive(Clone)]
pub(super) enum Servers {
    /// The only server, and its address.
    One(MultiplexedConnection, (String, u16)),
    /// The nodes of a Redis Cluster.
    Cluster(Nodes),
}

impl Servers {
    /// Calls `node`, or the only server. It sets no limit of time: the caller must. After a
    /// redirection, `node` is the node that the call waits for.
    pub(super) async fn query(
        &mut self,
        node: &mut Option<usize>,
        call: &Cmd,
    ) -> RedisResult<Value> {
        match (self, node) {
            (Self::One(connection, _), _) => call.query_async(connection).await,
            (Self::Cluster(nodes), Some(node)) => nodes.query(node, call).await,
            (Self::Cluster(nodes), None) => {
                nodes.outdate();
                // As a node would say.
                let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
                let error = (kind, "no node has the keys");
                Err(RedisError::from(error))
            }
        }
    }

    /// Returns the node that has a key, in a Redis Cluster.
    pub(super) fn node_of(&self, key: &str) -> Option<usize> {
        self.nodes().and_then(|nodes| nodes.node_of(key))
    }

    /// Returns the connection to the only server, or to `node` of a Redis Cluster unless it fails.
    pub(super) fn at(&self, node: Option<usize>) -> Option<MultiplexedConnection> {
        match self {
            Self::One(connection, _) => Some(connection.clone()),
            Self::Cluster(nodes) => {
                nodes.healthy().find(|(at, _)| Some(*at) == node).map(|(_, server)| server)
            }
        }
    }

    /// Returns the address of the only server.
    pub(super) const fn address(&self) -> Option<&(String, u16)> {
        match self {
            Self::One(_, address) => Some(address),
            Self::Cluster(_) => None,
        }
    }

    /// Returns the nodes of a Redis Cluster.
    pub(super) const fn nodes(&self) -> Option<&Nodes> {
        match self {
            Self::One(..) => None,
            Self::Cluster(nodes) => Some(nodes),
        }
    }
}

/// Connects, without a limit of time on the whole: to the primary that is `known` to have taken
/// over, or to the nodes of a Redis Cluster that `former` has not reached.
pub(super) async fn connect_servers(
    caller: &Caller,
    known: Option<Primary>,
    former: Option<&Nodes>,
) -> RedisResult<Servers> {
    let settings = &caller.store.settings;
    match &settings.kind {
        StoreKind::Cluster => Nodes::connect(caller, former).await.map(Servers::Cluster),
        StoreKind::Sentinel { primary, user, password } => {
            if let Some(primary) = known {
                let connection = sentinels::connect(settings, &primary).await?;
                return Ok(Servers::One(connection, (primary.host, primary.port)));
            }

            let login = (user.as_deref(), password.as_ref());
            let client = first_named(settings, primary, login).await?;

            let mut address = (String::new(), 0);
            if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
                client.get_connection_info().addr()
            {
                address = (host.clone(), *port);
            }

            Ok(Servers::One(multiplexed(&client).await?, address))
        }
        StoreKind::Single => {
            let Some((host, port)) = settings.nodes.first() else {
                return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no node")));
            };
            Ok(Servers::One(open(settings, host, *port).await?, (host.clone(), *port)))
        }
    }
}
