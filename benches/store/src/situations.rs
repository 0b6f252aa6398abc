//! What happens to the cluster while calls are sent.

use crate::{Result, Settings, USUAL, cluster::Cluster};
use std::time::Duration;

/// What happens to a cluster of its own.
pub(crate) struct Situation {
    pub(crate) has_replica: bool,
    pub(crate) settings: Settings,
    /// The keys of the nodes that must not be affected. Key 0 is the affected one.
    pub(crate) others: &'static [usize],
    pub(crate) phases: &'static [Phase],
}

/// One event, and the time in which calls are counted. Each has a row in the table.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// It gets the affected key.
    pub(crate) act: fn(&Cluster, &str) -> Result<()>,
    pub(crate) lasts: Duration,
}

const OTHERS: &[usize] = &[1, 2];

/// The default `timeout` of flowgate's store.
const SHORT: Duration = Duration::from_millis(20);

const USUALLY: Situation =
    Situation { has_replica: false, settings: USUAL, others: OTHERS, phases: &[] };

const SHORTER: &str = "the same, 20 ms to connect and for each answer";

const MOVE_BESIDE_HUNG: Phase = phase(
    "a slot has moved (`MOVED`) while a third node hangs, 2.5 s",
    move_beside_hung_node,
    2_500,
);

pub(crate) const SITUATIONS: &[Situation] = &[
    Situation { phases: &[phase("nothing happens, 4 s", nothing, 4_000)], ..USUALLY },
    Situation { phases: &[phase("a node hangs, 4 s (`SIGSTOP`)", hang, 4_000)], ..USUALLY },
    Situation {
        phases: &[phase(
            "a node's connections break, and it accepts others but does not answer, 4 s",
            drop_clients,
            4_000,
        )],
        ..USUALLY
    },
    Situation {
        settings: Settings { connect: SHORT, answer: SHORT, ..USUAL },
        phases: &[phase(SHORTER, drop_clients, 4_000)],
        ..USUALLY
    },
    Situation {
        settings: Settings { connect: SHORT, answer: SHORT, limit: SHORT, ..USUAL },
        phases: &[phase("the same, and 20 ms for each call", drop_clients, 4_000)],
        ..USUALLY
    },
    Situation {
        has_replica: true,
        phases: &[
            phase("a node is killed, 2 s without a replacement", kill, 2_000),
            phase("then its replica takes over, 2 s", take_over, 2_000),
        ],
        ..USUALLY
    },
    Situation {
        has_replica: true,
        phases: &[phase("`CLUSTER FAILOVER`, 2 s", fail_over, 2_000)],
        ..USUALLY
    },
    Situation {
        phases: &[
            phase(
                "a slot moves, and its key is on the other node (`ASK`), 1 s",
                Cluster::begin_move,
                1_000,
            ),
            phase("then the slot has moved (`MOVED`), 1 s", Cluster::end_move, 1_000),
        ],
        ..USUALLY
    },
    Situation {
        settings: Settings { retries: 3, ..USUAL },
        phases: &[
            phase("`ASK`, with three retries, 1 s", Cluster::begin_move, 1_000),
            phase("then `MOVED`, with three retries, 1 s", Cluster::end_move, 1_000),
        ],
        ..USUALLY
    },
    Situation {
        // The third node hangs.
        others: &[1],
        phases: &[MOVE_BESIDE_HUNG],
        ..USUALLY
    },
    Situation {
        settings: Settings { connect: SHORT, answer: SHORT, ..USUAL },
        others: &[1],
        phases: &[Phase { name: SHORTER, ..MOVE_BESIDE_HUNG }],
        ..USUALLY
    },
];

const fn phase(
    name: &'static str,
    act: fn(&Cluster, &str) -> Result<()>,
    milliseconds: u64,
) -> Phase {
    Phase { name, act, lasts: Duration::from_millis(milliseconds) }
}

fn nothing(_: &Cluster, _: &str) -> Result<()> {
    Ok(())
}

fn hang(cluster: &Cluster, _: &str) -> Result<()> {
    cluster.nodes[0].signal("STOP")
}

fn drop_clients(cluster: &Cluster, _: &str) -> Result<()> {
    cluster.nodes[0].drop_clients(Duration::from_secs(4))
}

fn kill(cluster: &Cluster, _: &str) -> Result<()> {
    cluster.nodes[0].signal("KILL")
}

fn take_over(cluster: &Cluster, _: &str) -> Result<()> {
    cluster.nodes[3].cluster(&["FAILOVER", "TAKEOVER"])
}

fn fail_over(cluster: &Cluster, _: &str) -> Result<()> {
    cluster.nodes[3].cluster(&["FAILOVER"])
}

fn move_beside_hung_node(cluster: &Cluster, key: &str) -> Result<()> {
    cluster.nodes[2].signal("STOP")?;
    cluster.begin_move(key)?;
    cluster.end_move(key)
}
