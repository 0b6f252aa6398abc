//! The health of the store, as all clients of this process know it, and that of the sync.

use std::collections::{BTreeMap, HashMap};

/// The health of the store.
#[derive(Debug)]
pub(super) struct Health {
    /// The number of clients, and the identifier of the latest.
    clients: usize,
    next: u64,
    /// The number of failures when the store last answered, for each connected client.
    answered: HashMap<u64, u64>,
    /// The number of times that the store, or some of its nodes, began to fail.
    failures: u64,
    /// True if the log last called it up.
    said_up: Option<bool>,
    states: States,
    outages: Outages,
}

/// The states of rules with `sync_interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum States {
    /// No rule needs any.
    Unasked,
    /// Nothing has failed since they were asked for, and not all have arrived.
    Asked,
    /// Something failed before all had arrived: what other gateways have used is not known.
    Missing,
    /// All have arrived, and the latest sync succeeded.
    Known,
    /// All have arrived once, and the latest sync failed.
    Stale,
}

/// The outcome of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncOutcome {
    /// All states have arrived.
    All,
    /// More states are to come.
    Some,
    /// It failed, or the store rejected every rule.
    Nothing,
}

impl Health {
    /// Returns the health of a store that none of so many clients has reached yet.
    pub(super) fn new(clients: usize) -> Self {
        Self {
            clients,
            next: 0,
            answered: HashMap::new(),
            failures: 0,
            said_up: None,
            states: States::Unasked,
            outages: Outages::default(),
        }
    }

    /// Returns a number for a client.
    pub(super) const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Notes that the store has answered a call that a client made after so many failures. Returns
    /// whether it decides again for all.
    pub(super) fn on_up(&mut self, client: u64, failures: u64) -> bool {
        self.answered.insert(client, failures);
        let decides = self.is_up() && self.said_up != Some(true);
        if decides {
            self.said_up = Some(true);
        }
        decides
    }

    /// Notes that a client has lost its connection.
    pub(super) fn on_down(&mut self, client: u64) {
        self.answered.remove(&client);
    }

    /// Notes that a client has ended.
    pub(super) fn on_end(&mut self, client: u64) {
        self.clients = self.clients.saturating_sub(1);
        self.answered.remove(&client);
        self.outages.on_end(client);
    }

    /// Notes an error. Returns the number of failures if this begins one.
    pub(super) fn on_error(&mut self) -> Option<u64> {
        if self.is_failing() {
            return None;
        }
        self.said_up = Some(false);
        self.failures += 1;
        if self.states == States::Asked {
            self.states = States::Missing;
        }
        Some(self.failures)
    }

    /// Notes that there is a sync, with a client of its own, which has not reached the store yet.
    /// Only the first call counts.
    pub(super) fn on_wanted(&mut self) {
        if self.states == States::Unasked {
            self.clients += 1;
            self.states = if self.is_failing() { States::Missing } else { States::Asked };
        }
    }

    /// Notes the outcome of a sync.
    pub(super) const fn on_sync(&mut self, came: SyncOutcome) {
        self.states = match (came, self.states) {
            (SyncOutcome::All, _) | (SyncOutcome::Some, States::Known | States::Stale) => {
                States::Known
            }
            (SyncOutcome::Some, States::Unasked | States::Asked) => States::Asked,
            (SyncOutcome::Some, States::Missing) => States::Missing,
            (SyncOutcome::Nothing, States::Known | States::Stale) => States::Stale,
            (SyncOutcome::Nothing, States::Unasked | States::Asked | States::Missing) => {
                States::Missing
            }
        };
    }

    /// Notes which nodes of a Redis Cluster fail for a client. Returns those that failed for no
    /// client before, for the log, and how often the store has failed with that.
    pub(super) fn on_nodes(&mut self, client: u64, failed: FailedNodes) -> Option<(String, u64)> {
        let lost = self.outages.on_failed(client, failed, self.failures + 1);
        if lost.is_empty() {
            return None;
        }
        self.failures += 1;
        Some((lost, self.failures))
    }

    /// Notes that a client has checked its other nodes after so many failures. Returns the nodes
    /// that now fail for no client, for the log.
    pub(super) fn on_checked(&mut self, client: u64, failures: u64) -> String {
        self.outages.on_checked(client, failures)
    }

    /// Returns whether no node of a Redis Cluster fails.
    pub(super) fn is_whole(&self) -> bool {
        self.outages.is_empty()
    }

    /// Returns whether it has answered all clients since the latest failure.
    pub(super) fn is_up(&self) -> bool {
        let answered = self.answered.values().filter(|asked| **asked == self.failures).count();
        self.clients > 0 && answered == self.clients
    }

    /// Returns whether it fails.
    pub(super) fn is_failing(&self) -> bool {
        self.said_up == Some(false)
    }

    /// Returns whether rules with `sync_interval` go by `on_store_error`.
    pub(super) fn is_cut_off(&self) -> bool {
        match self.states {
            States::Unasked => self.is_failing(),
            States::Asked | States::Known => false,
            States::Missing | States::Stale => true,
        }
    }

    /// Returns whether the sync succeeds.
    pub(super) fn is_syncing(&self) -> bool {
        self.states == States::Known
    }

    /// Returns whether states are awaited, and nothing has failed.
    pub(super) fn is_asking(&self) -> bool {
        self.states == States::Asked
    }

    /// Returns whether it has answered all clients, with all states if `is_synced`; or has failed.
    pub(super) fn is_settled(&self, is_synced: bool) -> bool {
        let is_well = self.is_up() && (self.is_syncing() || !is_synced);
        is_well || self.is_failing() || self.is_cut_off()
    }
}

/// Nodes that fail by their names, and why.
pub(super) type FailedNodes = BTreeMap<String, String>;

/// The failing nodes of a Redis Cluster, as all workers of this process know them.
#[derive(Debug, Default)]
pub(super) struct Outages {
    clients: HashMap<u64, Seen>,
    /// Nodes that the log calls failing, and how often the store had failed with that.
    logged: BTreeMap<String, u64>,
}

/// The failing nodes that one client knows.
#[derive(Debug)]
struct Seen {
    failed: FailedNodes,
    /// The number of failures when this client last checked all other nodes.
    checked: u64,
}

impl Outages {
    /// Notes the nodes that fail for a client, after so many failures of the store. Returns those
    /// that are new, for the log.
    pub(super) fn on_failed(&mut self, client: u64, failed: FailedNodes, failures: u64) -> String {
        let mut new = Vec::new();
        for (name, why) in &failed {
            self.logged.entry(name.clone()).or_insert_with(|| {
                new.push(format!("{name}: {why}"));
                failures
            });
        }
        let checked = self.clients.get(&client).map_or(0, |seen| seen.checked);
        self.clients.insert(client, Seen { failed, checked });
        new.join(", ")
    }

    /// Notes that a client has checked its other nodes after so many failures. Returns the nodes
    /// that now fail for no client, for the log: also such that have left the cluster.
    pub(super) fn on_checked(&mut self, client: u64, failures: u64) -> String {
        if let Some(seen) = self.clients.get_mut(&client) {
            seen.checked = failures;
        }
        let clients = &self.clients;
        let is_back = |name: &String, failures: &mut u64| {
            // A client that has not checked since may not have noticed the failure yet.
            let works = |seen: &Seen| seen.checked >= *failures && !seen.failed.contains_key(name);
            clients.values().all(works)
        };
        let back: Vec<String> = self.logged.extract_if(.., is_back).map(|(name, _)| name).collect();
        back.join(", ")
    }

    /// Forgets a client that has ended.
    pub(super) fn on_end(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    /// Returns whether no node fails.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.values().all(|seen| seen.failed.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns that of a store which has answered its only client.
    fn well() -> Health {
        let mut health = Health::new(1);
        let client = health.number();
        assert!(health.on_up(client, 0));
        health
    }

    #[test]
    fn the_store_is_up_when_all_clients_have_reached_it() {
        let mut health = Health::new(2);
        let [one, other, third] = [(); 3].map(|()| health.number());
        assert!(!health.is_up());
        assert!(!health.on_up(one, 0), "the other has not begun");
        assert!(health.on_up(other, 0));
        health.on_down(other);
        assert!(!health.is_up());
        health.on_end(other);
        assert!(health.is_up(), "the one that is left has a connection");
        health.on_wanted();
        health.on_wanted();
        assert!(!health.is_up(), "the sync has begun, and has none");
        health.on_end(third);
        assert!(health.is_up());
    }

    #[test]
    fn after_a_failure_the_store_is_up_when_it_has_answered_the_clients_that_asked_since() {
        let mut health = Health::new(2);
        let [one, idle] = [(); 2].map(|()| health.number());
        health.on_up(one, 0);
        health.on_up(idle, 0);
        assert_eq!(health.on_error(), Some(1));
        health.on_down(one);
        assert_eq!(health.on_error(), None, "it still fails");
        assert!(!health.on_up(one, 1), "a client that has not asked since may have lost it, too");
        assert!(!health.on_up(idle, 0), "that was asked before");
        assert!(health.on_up(idle, 1));
        assert_eq!(health.on_error(), Some(2));
    }

    #[test]
    fn a_rule_that_wants_states_of_a_store_that_is_well_counts_the_whole_whatever_failed_before() {
        let mut health = well();
        health.on_error();
        assert!(health.is_cut_off(), "a rule may begin to want them now");
        assert!(health.on_up(1, 1));
        health.on_wanted();
        assert!(!health.is_cut_off() && health.is_asking() && !health.is_settled(true));
        health.on_sync(SyncOutcome::Some);
        assert!(!health.is_cut_off() && !health.is_syncing());
        health.on_sync(SyncOutcome::All);
        assert!(health.is_syncing());
    }

    #[test]
    fn what_has_failed_before_all_states_were_sent_is_over_when_all_are_sent_and_not_before() {
        let wanted = |fails_before: bool| {
            let mut health = well();
            if fails_before {
                health.on_error();
                health.on_wanted();
            } else {
                health.on_wanted();
                health.on_error();
            }
            health
        };
        let mut rejected = well();
        rejected.on_wanted();
        rejected.on_sync(SyncOutcome::Nothing);
        for mut health in [wanted(true), wanted(false), rejected] {
            assert!(health.is_cut_off() && health.is_settled(true));
            let syncing = health.number();
            health.on_up(1, 1);
            health.on_up(syncing, 1);
            assert!(health.is_cut_off(), "{health:?}");
            health.on_sync(SyncOutcome::Some);
            assert!(health.is_cut_off(), "{health:?}");
            health.on_sync(SyncOutcome::All);
            assert!(!health.is_cut_off(), "{health:?}");
        }
    }

    #[test]
    fn states_that_were_known_are_so_again_with_the_first_sync_that_succeeds() {
        let mut health = well();
        health.on_wanted();
        health.on_sync(SyncOutcome::All);
        health.on_error();
        assert!(!health.is_cut_off(), "it was another client that failed");
        health.on_sync(SyncOutcome::Nothing);
        assert!(health.is_cut_off() && !health.is_syncing());
        health.on_sync(SyncOutcome::Some);
        assert!(!health.is_cut_off() && health.is_syncing());
    }

    #[test]
    fn a_node_that_fails_for_one_client_has_all_asked_and_leaves_the_store_deciding() {
        let mut health = well();
        let failed = |why: &str| FailedNodes::from([("a:1".to_owned(), why.to_owned())]);
        assert_eq!(health.on_nodes(1, failed("hangs")), Some(("a:1: hangs".to_owned(), 1)));
        assert_eq!(health.on_nodes(1, failed("hangs still")), None);
        assert!(!health.is_whole() && !health.is_failing());
        assert!(!health.is_up() && !health.on_up(1, 1), "that was said");
        assert_eq!(health.on_nodes(1, FailedNodes::new()), None);
        assert_eq!(health.on_checked(1, 1), "a:1");
        assert!(health.is_whole() && health.is_up());
    }
}

#[cfg(test)]
mod outages_tests {
    use super::*;

    fn failed(names: &[&str]) -> FailedNodes {
        names.iter().map(|name| ((*name).to_owned(), "hangs".to_owned())).collect()
    }

    #[test]
    fn a_node_fails_from_the_first_client_that_says_so_to_the_last() {
        let mut outages = Outages::default();
        assert_eq!(outages.on_failed(1, failed(&["a:1"]), 1), "a:1: hangs");
        assert_eq!(outages.on_failed(2, failed(&["a:1", "b:1"]), 2), "b:1: hangs");
        assert_eq!(outages.on_failed(2, failed(&["a:1", "c:1"]), 3), "c:1: hangs");
        assert_eq!(outages.on_checked(1, 3), "", "the other has not checked since");
        assert_eq!(outages.on_checked(2, 3), "b:1");
        assert_eq!(outages.on_failed(1, failed(&[]), 4), "");
        assert_eq!(outages.on_checked(1, 3), "");
        assert!(!outages.is_empty());
        assert_eq!(outages.on_failed(2, failed(&[]), 4), "");
        assert_eq!(outages.on_checked(2, 3), "a:1, c:1");
        assert!(outages.is_empty());
    }

    #[test]
    fn a_node_is_back_when_clients_that_had_not_noticed_the_failure_have_checked_too() {
        let mut outages = Outages::default();
        for client in [1, 2] {
            outages.on_failed(client, failed(&[]), 1);
            assert_eq!(outages.on_checked(client, 0), "");
        }
        assert_eq!(outages.on_failed(1, failed(&["a:1"]), 1), "a:1: hangs");
        assert_eq!(outages.on_failed(1, failed(&[]), 2), "");
        assert_eq!(outages.on_checked(1, 1), "", "the other's connection may be broken, too");
        assert_eq!(outages.on_failed(2, failed(&["a:1"]), 2), "", "that is logged");
        assert_eq!(outages.on_checked(2, 1), "");
        assert_eq!(outages.on_failed(2, failed(&[]), 2), "");
        assert_eq!(outages.on_checked(2, 1), "a:1");
        assert_eq!(outages.on_failed(2, failed(&["a:1"]), 2), "a:1: hangs");
        outages.on_end(2);
        assert_eq!(outages.on_checked(1, 2), "a:1", "the client that is left reaches it");
        assert_eq!(outages.on_failed(1, failed(&["a:1"]), 3), "a:1: hangs");
        assert_eq!(outages.on_checked(2, 3), "", "a client that has ended does not count");
        assert_eq!(outages.on_failed(1, failed(&[]), 3), "");
        assert_eq!(outages.on_checked(1, 3), "a:1");
    }
}
