//! A Redis Cluster of redis-server processes on this machine.

use crate::{Result, port::free_port};
use redis::{Client, Connection, FromRedisValue, TlsCertificates};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The primaries, and the number of slots.
pub(crate) const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// The longest that the cluster may take to become ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// Three primaries with a third of the slots each, and perhaps a replica of the first one.
///
/// They end with this value, and their files are removed.
pub(crate) struct Cluster {
    // Dropped before the folder that they write to.
    pub(crate) nodes: Vec<Node>,
    /// The certificate that all nodes present, and that clients trust.
    certificate: Option<Vec<u8>>,
    folder: TempDir,
}

/// One redis-server.
pub(crate) struct Node {
    child: Child,
    port: u16,
    bus: u16,
    certificate: Option<Vec<u8>>,
}

impl Cluster {
    /// Starts the nodes and waits until they know each other.
    pub(crate) fn start(has_replica: bool, has_tls: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let certificate = has_tls.then(|| certificate(folder.path())).transpose()?;
        let mut cluster = Self { nodes: Vec::new(), certificate, folder };
        for at in 0..PRIMARIES + usize::from(has_replica) {
            let node = Node::start(cluster.folder.path(), at, cluster.certificate.clone())?;
            cluster.nodes.push(node);
        }
        cluster.meet()?;
        if has_replica {
            let primary: String = cluster.nodes[0].cluster(&["MYID"])?;
            let replica = &cluster.nodes[PRIMARIES];
            let () = replica.cluster(&["REPLICATE", &primary])?;
            wait("the replica has the state of its primary", || {
                let info: String = replica.run("INFO", &["replication"])?;
                Ok(info.contains("master_link_status:up"))
            })?;
        }
        Ok(cluster)
    }

    fn meet(&self) -> Result<()> {
        for (at, node) in self.nodes.iter().enumerate() {
            if at < PRIMARIES {
                let [first, end] = [at, at + 1].map(|at| at * SLOTS / PRIMARIES);
                let range = [first, end - 1].map(|slot| slot.to_string());
                let () = node.cluster(&["ADDSLOTSRANGE", &range[0], &range[1]])?;
            }
            for other in &self.nodes {
                let [port, bus] = [other.port, other.bus].map(|port| port.to_string());
                let () = node.cluster(&["MEET", "127.0.0.1", &port, &bus])?;
            }
        }
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        let assigned = format!("cluster_slots_assigned:{SLOTS}\r");
        for node in &self.nodes {
            wait("the nodes know each other", || {
                let info: String = node.cluster(&["INFO"])?;
                let parts = ["cluster_state:ok\r", &known, &assigned];
                Ok(parts.iter().all(|part| info.contains(part)))
            })?;
        }
        Ok(())
    }

    /// Returns the addresses of the primaries.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().take(PRIMARIES).map(Node::url).collect()
    }

    pub(crate) fn certificates(&self) -> Option<TlsCertificates> {
        self.certificate.clone().map(trusted)
    }

    /// Returns one key for each primary, in a slot of its own.
    pub(crate) fn keys(&self) -> Result<Vec<String>> {
        let mut keys = vec![None; PRIMARIES];
        for name in (0..).map(|number| format!("key-{number}")) {
            let slot: usize = self.nodes[0].cluster(&["KEYSLOT", &name])?;
            let owner = (0..PRIMARIES).rfind(|at| at * SLOTS / PRIMARIES <= slot);
            keys[owner.ok_or("no primary has the slot")?].get_or_insert(name);
            if keys.iter().all(Option::is_some) {
                break;
            }
        }
        Ok(keys.into_iter().flatten().collect())
    }

    /// Moves a key from the first primary to the second. Until `end_move`, the first one redirects
    /// each call for this key with `ASK`.
    pub(crate) fn begin_move(&self, key: &str) -> Result<()> {
        let from = &self.nodes[0];
        let to = &self.nodes[1];
        let slot = from.cluster::<u16>(&["KEYSLOT", key])?.to_string();
        let source: String = from.cluster(&["MYID"])?;
        let target: String = to.cluster(&["MYID"])?;
        let () = to.cluster(&["SETSLOT", &slot, "IMPORTING", &source])?;
        let () = from.cluster(&["SETSLOT", &slot, "MIGRATING", &target])?;
        from.run("MIGRATE", &["127.0.0.1", &to.port.to_string(), key, "0", "5000"])
    }

    /// Gives the slot of the key to the second primary. The first one answers with `MOVED` then.
    pub(crate) fn end_move(&self, key: &str) -> Result<()> {
        let slot = self.nodes[0].cluster::<u16>(&["KEYSLOT", key])?.to_string();
        let target: String = self.nodes[1].cluster(&["MYID"])?;
        for node in [&self.nodes[1], &self.nodes[0]] {
            let () = node.cluster(&["SETSLOT", &slot, "NODE", &target])?;
        }
        Ok(())
    }
}

impl Node {
    fn start(folder: &Path, at: usize, certificate: Option<Vec<u8>>) -> Result<Self> {
        let port = free_port();
        let bus = free_port();
        let files = folder.join(at.to_string());
        fs::create_dir(&files)?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(&files).args(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]);
        // The nodes start no failover: the situations say when one begins.
        command.args(["--cluster-node-timeout", "120000"]);
        command.args(["--cluster-require-full-coverage", "no"]);
        command.args(["--enable-debug-command", "local"]);
        let port_text = port.to_string();
        if certificate.is_some() {
            let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name));
            command.args(["--port", "0", "--tls-port", &port_text, "--tls-auth-clients", "no"]);
            command.args(["--tls-cluster", "yes", "--tls-replication", "yes"]);
            command.arg("--tls-cert-file").arg(&cert).arg("--tls-ca-cert-file").arg(&cert);
            command.arg("--tls-key-file").arg(&key);
        } else {
            command.args(["--port", &port_text]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("redis-server: {error}"))?;
        let node = Self { child, port, bus, certificate };
        wait("redis-server answers", || Ok(node.run::<String>("PING", &[]).is_ok()))?;
        Ok(node)
    }

    fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    fn connection(&self) -> Result<Connection> {
        let client = match &self.certificate {
            Some(certificate) => Client::build_with_tls(self.url(), trusted(certificate.clone())),
            None => Client::open(self.url()),
        };
        let connection = client?.get_connection_with_timeout(Duration::from_secs(5))?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(connection)
    }

    /// Runs a command on a new connection.
    pub(crate) fn run<T: FromRedisValue>(&self, command: &str, words: &[&str]) -> Result<T> {
        Ok(redis::cmd(command).arg(words).query(&mut self.connection()?)?)
    }

    pub(crate) fn cluster<T: FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        self.run("CLUSTER", words)
    }

    /// Closes the connections of all clients. The node then does nothing for this time, but the
    /// kernel still accepts connections for it.
    pub(crate) fn drop_clients(&self, hangs: Duration) -> Result<()> {
        let mut commands = redis::pipe();
        // In one transaction, so that no client is answered between the two.
        commands.atomic().cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]);
        commands.cmd("DEBUG").arg("SLEEP").arg(hangs.as_secs_f64());
        // Its answer would come after that time.
        Ok(self.connection()?.send_packed_command(&commands.get_packed_pipeline())?)
    }

    /// Sends the process a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let words = [format!("-{name}"), self.child.id().to_string()];
        let status = Command::new("kill").args(words).status();
        let status = status.map_err(|error| format!("kill: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("kill -{name}: {status}").into()) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Writes a certificate for the nodes and its key, and returns the certificate.
fn certificate(folder: &Path) -> Result<Vec<u8>> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    fs::write(folder.join("cert.pem"), made.cert.pem())?;
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem())?;
    Ok(made.cert.pem().into_bytes())
}

fn trusted(certificate: Vec<u8>) -> TlsCertificates {
    TlsCertificates { client_tls: None, root_cert: Some(certificate) }
}

/// Waits until a condition holds.
fn wait(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        if began.elapsed() > PATIENCE {
            return Err(format!("not in {PATIENCE:?}: {what}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
