//! Which nodes of a Redis Cluster fail, as all workers of this process know.

use std::collections::{BTreeMap, HashMap};

/// Nodes that fail by their names, and why.
pub(in crate::cluster) type FailedNodes = BTreeMap<String, String>;

/// What all clients know.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Outages {
    clients: HashMap<u64, Seen>,
    /// Nodes that the log calls failing, and how often the store had failed with that.
    logged: BTreeMap<String, u64>,
}

/// What one client knows.
#[derive(Debug)]
struct Seen {
    failed: FailedNodes,
    /// How often the store had failed when this client last checked all other nodes.
    checked: u64,
}

impl Outages {
    /// Notes the nodes that fail for a client, after so many failures of the store. Returns those
    /// that are new, for the log.
    pub(in crate::cluster) fn on_failed(
        &mut self,
        client: u64,
        failed: FailedNodes,
        failures: u64,
    ) -> String {
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
    pub(in crate::cluster) fn on_checked(&mut self, client: u64, failures: u64) -> String {
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
    pub(in crate::cluster) fn on_end(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    /// Whether no node fails.
    pub(in crate::cluster) fn is_empty(&self) -> bool {
        self.clients.values().all(|seen| seen.failed.is_empty())
    }
}

#[cfg(test)]
mod tests {
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
