//! Which nodes of a Redis Cluster are out, as its clients know taken together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Nodes that are out, and why.
pub(super) type Out = BTreeMap<String, String>;

/// Nodes that have no keys any more, and which have theirs.
pub(super) type Heirs = BTreeMap<String, BTreeSet<String>>;

/// What all clients have met.
#[derive(Debug, Default)]
pub(super) struct Outages {
    clients: HashMap<u64, Met>,
    said: BTreeMap<String, Said>,
}

/// A node that was said to fail.
#[derive(Debug)]
struct Said {
    /// After how many failures of the store that was.
    failures: u64,
    /// Which have its keys now, if others have.
    heirs: Option<BTreeSet<String>>,
}

/// What one of them has met.
#[derive(Debug, Default)]
struct Met {
    out: Out,
    /// After how many failures of the store it asked all others, which have answered.
    checked: u64,
}

impl Outages {
    /// Notes which are out for a client, after so many failures of the store, and which have the
    /// keys of others now. Returns, to be said, those that nobody had met.
    pub(super) fn on_out(&mut self, client: u64, out: Out, heirs: Heirs, failures: u64) -> String {
        let mut lost = Vec::new();
        for (name, why) in &out {
            self.said.entry(name.clone()).or_insert_with(|| {
                lost.push(format!("{name}: {why}"));
                Said { failures, heirs: None }
            });
        }
        for (name, heirs) in heirs {
            if let Some(said) = self.said.get_mut(&name) {
                said.heirs = Some(heirs);
            }
        }
        self.clients.entry(client).or_default().out = out;
        lost.join(", ")
    }

    /// Notes that all which are not out have answered a client that asked after so many failures.
    /// Returns, to be said, those that all clients reach again, or which have their keys.
    pub(super) fn on_checked(&mut self, client: u64, failures: u64) -> String {
        self.clients.entry(client).or_default().checked = failures;
        let clients = &self.clients;
        let back = self.said.extract_if(.., |name, said| {
            let decides = |name| !clients.values().any(|it| it.out.contains_key(name));
            clients.values().all(|it| it.checked >= said.failures)
                && decides(name)
                && said.heirs.iter().flatten().all(decides)
        });
        let back = back.filter_map(|(name, said)| match said.heirs {
            None => Some(name),
            // Each call about them says that nobody has them.
            Some(heirs) if heirs.is_empty() => None,
            Some(heirs) => {
                let heirs: Vec<String> = heirs.into_iter().collect();
                Some(format!("{} for {name}", heirs.join(" and ")))
            }
        });
        back.collect::<Vec<_>>().join(", ")
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

    fn on_out(outages: &mut Outages, client: u64, out: Out, failures: u64) -> String {
        outages.on_out(client, out, Heirs::new(), failures)
    }

    #[test]
    fn a_node_is_out_from_the_first_client_that_says_so_to_the_last() {
        let mut outages = Outages::default();
        assert_eq!(on_out(&mut outages, 1, out(&["a"]), 1), "a: hangs");
        assert_eq!(on_out(&mut outages, 2, out(&["a", "b"]), 2), "b: hangs");
        assert_eq!(on_out(&mut outages, 2, out(&["a", "c"]), 3), "c: hangs");
        assert_eq!(outages.on_checked(1, 3), "", "the other has not asked since");
        assert_eq!(outages.on_checked(2, 3), "b");
        assert_eq!(on_out(&mut outages, 1, out(&[]), 4), "");
        assert_eq!(outages.on_checked(1, 3), "");
        assert!(!outages.is_empty());
        assert_eq!(on_out(&mut outages, 2, out(&[]), 4), "");
        assert_eq!(outages.on_checked(2, 3), "a, c");
        assert!(outages.is_empty());
    }

    #[test]
    fn a_node_is_back_when_those_have_asked_it_too_that_had_not_met_its_failure() {
        let mut outages = Outages::default();
        for client in [1, 2] {
            on_out(&mut outages, client, out(&[]), 1);
            assert_eq!(outages.on_checked(client, 0), "");
        }
        assert_eq!(on_out(&mut outages, 1, out(&["a"]), 1), "a: hangs");
        assert_eq!(on_out(&mut outages, 1, out(&[]), 2), "");
        assert_eq!(outages.on_checked(1, 1), "", "the other's connection may have broken, too");
        assert_eq!(on_out(&mut outages, 2, out(&["a"]), 2), "", "that was said");
        assert_eq!(outages.on_checked(2, 1), "");
        assert_eq!(on_out(&mut outages, 2, out(&[]), 2), "");
        assert_eq!(outages.on_checked(2, 1), "a");
        assert_eq!(on_out(&mut outages, 2, out(&["a"]), 2), "a: hangs");
        outages.on_end(2);
        assert_eq!(outages.on_checked(1, 2), "a", "the one that is left reaches it");
    }

    #[test]
    fn a_node_whose_keys_others_have_is_back_under_their_names_when_all_reach_them() {
        let mut outages = Outages::default();
        let heirs = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Heirs::from([("a".to_owned(), names)])
        };
        assert_eq!(on_out(&mut outages, 1, out(&["a"]), 1), "a: hangs");
        assert_eq!(outages.on_out(1, out(&["b"]), heirs(&["b", "c"]), 2), "b: hangs");
        assert_eq!(outages.on_checked(1, 2), "", "one of them is out");
        assert_eq!(on_out(&mut outages, 1, out(&[]), 3), "");
        assert_eq!(outages.on_checked(1, 2), "b and c for a, b");
        assert_eq!(on_out(&mut outages, 1, out(&["a"]), 3), "a: hangs");
        assert_eq!(outages.on_out(1, out(&[]), heirs(&[]), 4), "");
        assert_eq!(outages.on_checked(1, 3), "", "nobody has its keys");
    }
}
