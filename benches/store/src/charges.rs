//! How often a call is charged whose answer was lost.

use crate::{Result, Settings, USUAL, cluster::Cluster, connect};
use std::time::Duration;
use tokio::time;

/// Sends 20 calls whose answers are lost, one by one, and returns how often the script ran.
pub(crate) async fn count(retries: u32, has_tls: bool) -> Result<u64> {
    let cluster = Cluster::start(false, has_tls)?;
    // redis-server runs the script, but then closes the connection as the answer is too long.
    let limit = ["SET", "client-output-buffer-limit", "normal 100000 0 0"];
    let () = cluster.nodes[0].run("CONFIG", &limit)?;
    let script = "redis.call('INCR', KEYS[1]) return string.rep('x', 200000)";
    let key = &cluster.keys()?[0];
    let mut connection = connect(&cluster, &Settings { retries, ..USUAL }).await?;
    for _ in 0..20 {
        let mut eval = redis::cmd("EVAL");
        let answer = eval.arg(script).arg(1).arg(key).query_async::<String>(&mut connection).await;
        if answer.is_ok() {
            return Err("an answer arrived".into());
        }
        // The next call finds a connection again.
        time::sleep(Duration::from_millis(500)).await;
    }
    cluster.nodes[0].run("GET", &[key])
}
