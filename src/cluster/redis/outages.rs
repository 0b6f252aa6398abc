//! Which nodes of a Redis Cluster are out, as its clients know taken together.

use super::slots::{Range, Slots};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Nodes that are out, and why.
pub(in crate::cluster) type Out = BTreeMap<String, String>;

/// What all clients have met.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Outages {
    clients: HashMap<u64, Met>,
    said: BTreeMap<String, Said>,
}

/// A node that was said to fail.
#[derive(Debug)]
struct Said {
    /// After how many failures of the store that was.
    failures: u64,
    /// What it had then.
    slots: Vec<Range>,
}

/// What one of them has met.
#[derive(Debug)]
struct Met {
    out: Out,
    /// Which node has which keys, as it knows.
    slots: Arc<Slots>,
    /// After how many failures of the store it asked all others, which have answered.
    checked: u64,
}

impl Outages {
    /// Notes which are out for a client, after so many failures of the store, and which has which
    /// keys, as it knows. Returns, to be said, those that nobody had met.
    pub(in crate::cluster) fn on_out(
        &mut self,
        client: u64,
        out: Out,
        slots: &Arc<Slots>,
        failures: u64,
    ) -> String {
        let mut lost = Vec::new();
        for (name, why) in &out {
            self.said.entry(name.clone()).or_insert_with(|| {
                lost.push(format!("{name}: {why}"));
                Said { failures, slots: slots.of_node(name) }
            });
        }
        let slots = Arc::clone(slots);
        let checked = self.clients.get(&client).map_or(0, |it| it.checked);
        self.clients.insert(client, Met { out, slots, checked });
        lost.join(", ")
    }

    /// Notes that all which are not out have answered a client that asked after so many failures.
    /// Returns, to be said, those that all clients reach again, or the nodes that have their keys.
    pub(in crate::cluster) fn on_checked(&mut self, client: u64, failures: u64) -> String {
        if let Some(met) = self.clients.get_mut(&client) {
            met.checked = failures;
        }
        let mut back = Vec::new();
        self.said.retain(|name, said| {
            let Some(heirs) = heirs(self.clients.values(), name, said) else { return true };
            let heirs: Vec<String> = heirs.into_iter().collect();
            back.push(match &heirs[..] {
                [] => name.clone(),
                _ => format!("{} for {name}", heirs.join(" and ")),
            });
            false
        });
        back.join(", ")
    }

    /// Notes that a client has ended.
    pub(in crate::cluster) fn on_end(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    /// Whether none is out.
    pub(in crate::cluster) fn is_empty(&self) -> bool {
        self.clients.values().all(|it| it.out.is_empty())
    }
}

/// Returns which nodes decide for all clients about what a node had that was said to fail, unless it
/// does itself; `None` if that is not so for all of it and all of them.
fn heirs<'a>(
    mut clients: impl Iterator<Item = &'a Met>,
    name: &str,
    said: &Said,
) -> Option<BTreeSet<String>> {
    clients.try_fold(BTreeSet::new(), |mut heirs, met| {
        if met.checked < said.failures {
            return None;
        }
        let is_there = met.slots.nodes.iter().any(|node| node.name() == name);
        let decide =
            if is_there { [name.to_owned()].into() } else { met.slots.owners(&said.slots)? };
        if decide.iter().any(|it| met.out.contains_key(it)) {
            return None;
        }
        heirs.extend(decide.into_iter().filter(|it| it != name));
        Some(heirs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns nodes that are out.
    fn out(names: &[&str]) -> Out {
        names.iter().map(|name| ((*name).to_owned(), "hangs".to_owned())).collect()
    }

    fn slots() -> Arc<Slots> {
        Arc::new(Slots::of(&[("a:1", &[(0, 9)]), ("b:1", &[(10, 19)]), ("c:1", &[(20, 29)])]))
    }

    fn on_out(outages: &mut Outages, client: u64, out: Out, failures: u64) -> String {
        outages.on_out(client, out, &slots(), failures)
    }

    #[test]
    fn a_node_is_out_from_the_first_client_that_says_so_to_the_last() {
        let mut outages = Outages::default();
        assert_eq!(on_out(&mut outages, 1, out(&["a:1"]), 1), "a:1: hangs");
        assert_eq!(on_out(&mut outages, 2, out(&["a:1", "b:1"]), 2), "b:1: hangs");
        assert_eq!(on_out(&mut outages, 2, out(&["a:1", "c:1"]), 3), "c:1: hangs");
        assert_eq!(outages.on_checked(1, 3), "", "the other has not asked since");
        assert_eq!(outages.on_checked(2, 3), "b:1");
        assert_eq!(on_out(&mut outages, 1, out(&[]), 4), "");
        assert_eq!(outages.on_checked(1, 3), "");
        assert!(!outages.is_empty());
        assert_eq!(on_out(&mut outages, 2, out(&[]), 4), "");
        assert_eq!(outages.on_checked(2, 3), "a:1, c:1");
        assert!(outages.is_empty());
    }

    #[test]
    fn a_node_is_back_when_those_have_asked_it_too_that_had_not_met_its_failure() {
        let mut outages = Outages::default();
        for client in [1, 2] {
            on_out(&mut outages, client, out(&[]), 1);
            assert_eq!(outages.on_checked(client, 0), "");
        }
        assert_eq!(on_out(&mut outages, 1, out(&["a:1"]), 1), "a:1: hangs");
        assert_eq!(on_out(&mut outages, 1, out(&[]), 2), "");
        assert_eq!(outages.on_checked(1, 1), "", "the other's connection may have broken, too");
        assert_eq!(on_out(&mut outages, 2, out(&["a:1"]), 2), "", "that was said");
        assert_eq!(outages.on_checked(2, 1), "");
        assert_eq!(on_out(&mut outages, 2, out(&[]), 2), "");
        assert_eq!(outages.on_checked(2, 1), "a:1");
        assert_eq!(on_out(&mut outages, 2, out(&["a:1"]), 2), "a:1: hangs");
        outages.on_end(2);
        assert_eq!(outages.on_checked(1, 2), "a:1", "the one that is left reaches it");
        assert_eq!(on_out(&mut outages, 1, out(&["a:1"]), 3), "a:1: hangs");
        assert_eq!(outages.on_checked(2, 3), "", "one that has ended counts no more");
        assert_eq!(on_out(&mut outages, 1, out(&[]), 3), "");
        assert_eq!(outages.on_checked(1, 3), "a:1");
    }

    #[test]
    fn a_node_whose_keys_others_have_is_back_under_their_names_when_all_reach_them() {
        let mut outages = Outages::default();
        let divided = Slots::of(&[("b:1", &[(0, 4), (10, 19)]), ("c:1", &[(5, 9), (20, 29)])]);
        let divided = Arc::new(divided);
        assert_eq!(on_out(&mut outages, 1, out(&["a:1"]), 1), "a:1: hangs");
        assert_eq!(outages.on_out(1, out(&["b:1"]), &divided, 2), "b:1: hangs");
        assert_eq!(outages.on_checked(1, 2), "", "one of them is out");
        assert_eq!(outages.on_out(1, out(&[]), &divided, 3), "");
        assert_eq!(outages.on_checked(1, 2), "b:1 and c:1 for a:1, b:1");
    }

    #[test]
    fn a_node_whose_keys_nobody_has_is_back_when_somebody_has_all_of_them() {
        let mut outages = Outages::default();
        let nodes = |of_b: &[Range]| Arc::new(Slots::of(&[("b:1", of_b), ("c:1", &[(20, 29)])]));
        let mut lose = || on_out(&mut outages, 1, out(&["a:1"]), 1);
        assert_eq!((lose(), lose()), ("a:1: hangs".to_owned(), String::new()));
        for lacking in [&[(10, 19)], &[(0, 8), (10, 19)][..]] {
            assert_eq!(outages.on_out(1, out(&[]), &nodes(lacking), 2), "");
            assert_eq!(outages.on_checked(1, 1), "", "nobody has all its keys");
        }
        assert_eq!(outages.on_out(1, out(&[]), &nodes(&[(0, 19)]), 2), "");
        assert_eq!(outages.on_checked(1, 1), "b:1 for a:1");
    }

    #[test]
    fn a_node_that_has_its_keys_again_is_back_whoever_had_them_meanwhile() {
        let mut outages = Outages::default();
        let without = Arc::new(Slots::of(&[("b:1", &[(10, 19)]), ("c:1", &[(0, 9), (20, 29)])]));
        assert_eq!(on_out(&mut outages, 1, out(&["a:1"]), 1), "a:1: hangs");
        assert_eq!(outages.on_out(1, out(&["c:1"]), &without, 2), "c:1: hangs");
        assert_eq!(outages.on_checked(1, 2), "");
        assert_eq!(on_out(&mut outages, 1, out(&[]), 3), "");
        assert_eq!(outages.on_checked(1, 2), "a:1, c:1");
    }
}
