//! A connection to a store of any kind.

use super::{
    caller::Caller,
    connect::{first_named, multiplexed, open},
    nodes::Nodes,
    sentinels::{self, Primary},
};
use crate::config::StoreKind;
use redis::{
    Cmd, ConnectionAddr, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
    aio::MultiplexedConnection,
};

/// A connection that many calls share. Calls are answered in their order.
#[derive(Clone)]
pub(in crate::cluster) enum Connection {
    /// With where the server is.
    One(MultiplexedConnection, (String, u16)),
    /// One to each node.
    Cluster(Nodes),
}

impl Connection {
    /// Calls `node` of several, or the only one, and waits for the answer: without a limit, so that
    /// the caller must have one. `node` becomes the one that is waited for.
    pub(in crate::cluster) async fn query(
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

    /// Returns which node has a key, if there are several.
    pub(in crate::cluster) fn node_of(&self, key: &str) -> Option<usize> {
        self.nodes().and_then(|nodes| nodes.node_of(key))
    }

    /// Returns where the server is, if there is only one.
    pub(in crate::cluster) const fn server(&self) -> Option<&(String, u16)> {
        match self {
            Self::One(_, server) => Some(server),
            Self::Cluster(_) => None,
        }
    }

    /// Returns the nodes, if there are several.
    pub(in crate::cluster) const fn nodes(&self) -> Option<&Nodes> {
        match self {
            Self::One(..) => None,
            Self::Cluster(nodes) => Some(nodes),
        }
    }
}

/// Connects, without a limit of time on the whole: to the nodes of a Redis Cluster that `former`
/// has not reached, or to the primary that is `known` to have taken over.
pub(super) async fn dial(
    caller: &Caller,
    known: Option<Primary>,
    former: Option<&Nodes>,
) -> RedisResult<Connection> {
    let settings = &caller.store.settings;
    match &settings.kind {
        StoreKind::Cluster => Nodes::connect(caller, former).await.map(Connection::Cluster),
        StoreKind::Sentinel { primary, user, password } => {
            let login = (user.as_deref(), password.as_ref());
            if let Some(primary) = known {
                let connection = sentinels::connect(settings, &primary).await?;
                return Ok(Connection::One(connection, (primary.host, primary.port)));
            }
            let client = first_named(settings, primary, login).await?;
            let mut server = (String::new(), 0);
            if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
                client.get_connection_info().addr()
            {
                server = (host.clone(), *port);
            }
            Ok(Connection::One(multiplexed(&client).await?, server))
        }
        StoreKind::Single => {
            let Some((host, port)) = settings.nodes.first() else {
                return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no node")));
            };
            Ok(Connection::One(open(settings, host, *port).await?, (host.clone(), *port)))
        }
    }
}
