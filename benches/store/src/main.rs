//! Measures the Redis Cluster client of the crate `redis` while nodes fail and slots move, and
//! prints the table of README.md:
//!
//! ```text
//! cargo run --release --manifest-path benches/store/Cargo.toml
//! ```
//!
//! It needs Linux, redis-server 7 with TLS, and `kill`. It takes three to four minutes.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]

mod charges;
mod cluster;
mod load;
#[path = "../../../tests/port/mod.rs"]
mod port;
mod situations;
mod table;

use cluster::Cluster;
use load::Load;
use redis::{cluster::ClusterClientBuilder, cluster_async::ClusterConnection};
use situations::{SITUATIONS, Situation};
use std::{
    error::Error,
    process::Command,
    time::{Duration, Instant},
};
use table::cell;
use tokio::{
    signal::unix::{SignalKind, signal},
    time,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The longest that everything may take.
const PATIENCE: Duration = Duration::from_mins(20);

/// How a client is set up.
struct Settings {
    /// To connect to a node.
    connect: Duration,
    /// For one answer of a node.
    answer: Duration,
    /// For a call, with all that the client does for it.
    limit: Duration,
    retries: u32,
}

const USUAL: Settings = Settings {
    connect: Duration::from_millis(250),
    answer: Duration::from_millis(50),
    limit: Duration::from_millis(50),
    retries: 0,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // Whichever ends first, the nodes end with `measure`.
    tokio::select! {
        measured = measure() => measured,
        _ = interrupt.recv() => Err("interrupted".into()),
        _ = terminate.recv() => Err("terminated".into()),
        () = time::sleep(PATIENCE) => Err("it takes too long".into()),
    }
}

async fn measure() -> Result<()> {
    println!("redis {}, {}\n", crate_version()?, server_version()?);
    println!(
        "| situation | affected node or slot | other nodes | with TLS: affected | with TLS: others |"
    );
    println!("|---|---|---|---|---|");
    for situation in SITUATIONS {
        let plain = rows(situation, false).await?;
        let secure = rows(situation, true).await?;
        for ((phase, plain), secure) in situation.phases.iter().zip(plain).zip(secure) {
            println!("| {} | {plain} | {secure} |", phase.name);
        }
    }
    println!("\n| retries | charges of 20 calls whose answers were lost | with TLS |");
    println!("|---|---|---|");
    for retries in [0, 3] {
        let plain = charges::count(retries, false).await?;
        let secure = charges::count(retries, true).await?;
        println!("| {retries} | {plain} | {secure} |");
    }
    Ok(())
}

/// Returns two cells for each phase of a situation: the affected key and the others.
async fn rows(situation: &Situation, has_tls: bool) -> Result<Vec<String>> {
    let mut cluster = Cluster::start(situation.has_replica, has_tls)?;
    let keys = cluster.keys()?;
    let connection = connect(&cluster, &situation.settings).await?;
    let load = Load::start(&connection, &keys);
    time::sleep(Duration::from_millis(500)).await;
    let mut times = vec![Instant::now()];
    for phase in situation.phases {
        let began = Instant::now();
        let act = phase.act;
        let moved = keys[0].clone();
        // On another thread, as the calls go on meanwhile.
        cluster =
            tokio::task::spawn_blocking(move || act(&cluster, &moved).map(|()| cluster)).await??;
        time::sleep(phase.lasts.saturating_sub(began.elapsed())).await;
        times.push(Instant::now());
    }
    let calls = load.end().await;
    let cells = times.windows(2).map(|time| {
        let cells = [&[0], situation.others].map(|keys| cell(&calls, keys, time[0], time[1]));
        cells.join(" | ")
    });
    Ok(cells.collect())
}

/// Connects the client to a cluster.
async fn connect(cluster: &Cluster, settings: &Settings) -> Result<ClusterConnection> {
    let mut builder = ClusterClientBuilder::new(cluster.urls())
        .connection_timeout(settings.connect)
        .response_timeout(settings.answer)
        .overall_response_timeout(Some(settings.limit))
        .retries(settings.retries);
    if let Some(certificates) = cluster.certificates() {
        builder = builder.certs(certificates);
    }
    Ok(builder.build()?.get_async_connection().await?)
}

fn crate_version() -> Result<&'static str> {
    let lock = include_str!("../Cargo.lock");
    let (_, found) = lock.split_once("name = \"redis\"\nversion = \"").ok_or("no redis")?;
    Ok(found.split('"').next().ok_or("no version")?)
}

fn server_version() -> Result<String> {
    let output = Command::new("redis-server").arg("--version").output()?;
    let text = String::from_utf8(output.stdout)?;
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    Ok(format!("redis-server {}", version.ok_or("no version")?))
}
