//! Which nodes of a Redis Cluster are out, as its clients know taken together.

use std::collections::{BTreeMap, HashMap};

/// Nodes that are out, and why.
pub(super) type Out = BTreeMap<String, String>;

/// What all clients have met.
#[derive(Debug, Default)]
pub(super) struct Outages {
    clients: HashMap<u64, Met>,
    /// Those that were said to fail, and after how many failures of the store that was.
    said: BTreeMap<String, u64>,
}

/// What one of them has met.
#[derive(Debug, Default)]
struct Met {
    out: Out,
    /// After how many failures of the store it asked all others, which have answered.
    checked: u64,
}

impl Outages {
    /// Notes which are out for a client, after so many failures of the store. Returns, to be said,
    /// those that nobody had met.
    pub(super) fn on_out(&mut self, client: u64, out: Out, failures: u64) -> String {
        let lost = out.iter().filter(|(name, _)| !self.said.contains_key(*name));
        let (names, lost): (Vec<_>, Vec<_>) =
            lost.map(|(name, why)| (name.clone(), format!("{name}: {why}"))).unzip();
        self.said.extend(names.into_iter().map(|name| (name, failures)));
        self.clients.entry(client).or_default().out = out;
        lost.join(", ")
    }

    /// Notes that all which are not out have answered a client that asked after so many failures.
    /// Returns, to be said, those that all clients reach again.
    pub(super) fn on_checked(&mut self, client: u64, failures: u64) -> String {
        self.clients.entry(client).or_default().checked = failures;
        let clients = &self.clients;
        let back = |name: &str, failures| {
            clients.values().all(|it| it.checked >= failures && !it.out.contains_key(name))
        };
        let back = self.said.extract_if(.., |name, failures| back(name, *failures));
        back.map(|(name, _)| name).collect::<Vec<_>>().join(", ")
    }

    /// Notes that a client has ended.
    pub(super) fn on_end(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    /// Whether none is out.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.values().all(|it| it.out.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(names: &[&str]) -> Out {
        names.iter().map(|name| ((*name).to_owned(), "hangs".to_owned())).collect()
    }

    #[test]
    fn a_node_is_out_from_the_first_client_that_says_so_to_the_last() {
        let mut outages = Outages::default();
        assert_eq!(outages.on_out(1, out(&["a"]), 1), "a: hangs");
        assert_eq!(outages.on_out(2, out(&["a", "b"]), 2), "b: hangs");
        assert_eq!(outages.on_out(2, out(&["a", "c"]), 3), "c: hangs");
        assert_eq!(outages.on_checked(1, 3), "", "the other has not asked since");
        assert_eq!(outages.on_checked(2, 3), "b");
        assert_eq!(outages.on_out(1, out(&[]), 4), "");
        assert_eq!(outages.on_checked(1, 3), "");
        assert!(!outages.is_empty());
        assert_eq!(outages.on_out(2, out(&[]), 4), "");
        assert_eq!(outages.on_checked(2, 3), "a, c");
        assert!(outages.is_empty());
    }

    #[test]
    fn a_node_is_back_when_those_have_asked_it_too_that_had_not_met_its_failure() {
        let mut outages = Outages::default();
        for client in [1, 2] {
            outages.on_out(client, out(&[]), 1);
            assert_eq!(outages.on_checked(client, 0), "");
        }
        assert_eq!(outages.on_out(1, out(&["a"]), 1), "a: hangs");
        assert_eq!(outages.on_out(1, out(&[]), 2), "");
        assert_eq!(outages.on_checked(1, 1), "", "the other's connection may have broken, too");
        assert_eq!(outages.on_out(2, out(&["a"]), 2), "", "that was said");
        assert_eq!(outages.on_checked(2, 1), "");
        assert_eq!(outages.on_out(2, out(&[]), 2), "");
        assert_eq!(outages.on_checked(2, 1), "a");
        assert_eq!(outages.on_out(2, out(&["a"]), 2), "a: hangs");
        outages.on_end(2);
        assert_eq!(outages.on_checked(1, 2), "a", "the one that is left reaches it");
    }
}
