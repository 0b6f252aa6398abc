//! The slots of a Redis Cluster, by its specification: which node has which keys.

use crate::cluster::decide::call::tag;
use redis::Value;
use std::collections::BTreeSet;

/// The number of slots.
const SLOTS: u16 = 16_384;

/// The numbers that are tried as a hash tag of each node: enough to find any slot.
const TRIES: u32 = 1_000_000;

/// A first and a last slot.
type Range = (u16, u16);

/// The primaries with their slots, and the replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) nodes: Vec<Node>,
    /// Each range and its node, in order.
    ranges: Vec<(Range, usize)>,
    /// Their addresses.
    replicas: BTreeSet<(String, u16)>,
}

/// One of the nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) host: String,
    pub(super) port: u16,
    /// A hash tag in one of its slots; `None` if it has no slot.
    pub(super) tag: Option<String>,
}

impl Node {
    /// Returns its name in the form that nodes use.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl Slots {
    /// Reads the answer to `CLUSTER SLOTS` of the node at `asked`; `None` if it is malformed.
    pub(super) fn read(answer: &Value, asked: &str) -> Option<Self> {
        let Value::Array(answer) = answer else { return None };
        let ranges = Vec::with_capacity(answer.len());
        let mut slots = Self { nodes: Vec::new(), ranges, replicas: BTreeSet::new() };
        for range in answer {
            let Value::Array(range) = range else { return None };
            let [first, last, primary, replicas @ ..] = &range[..] else { return None };
            let (host, port) = server(primary, asked)?;
            let node = Node { host, port, tag: None };
            let known = slots.nodes.iter().position(|known| *known == node);
            let at = known.unwrap_or(slots.nodes.len());
            if known.is_none() {
                slots.nodes.push(node);
            }
            slots.ranges.push(((whole(first)?, whole(last)?), at));
            slots.replicas.extend(replicas.iter().filter_map(|replica| server(replica, asked)));
        }
        slots.ranges.sort_unstable();
        slots.find_tags();
        Some(slots)
    }

    /// Finds a hash tag for each node.
    fn find_tags(&mut self) {
        let mut left = self.nodes.len();
        for number in 0..TRIES {
            if left == 0 {
                return;
            }
            let tag = number.to_string();
            let node = self.node_of(&tag).and_then(|node| self.nodes.get_mut(node));
            if let Some(node) = node.filter(|node| node.tag.is_none()) {
                node.tag = Some(tag);
                left -= 1;
            }
        }
    }

    /// Returns the addresses of all nodes and replicas.
    pub(super) fn servers(&self) -> impl Iterator<Item = (String, u16)> {
        let nodes = self.nodes.iter().map(|node| (node.host.clone(), node.port));
        nodes.chain(self.replicas.iter().cloned())
    }

    /// Returns the node that has a key, if any has it.
    pub(super) fn node_of(&self, key: &str) -> Option<usize> {
        let slot = slot(key);
        let after = self.ranges.partition_point(|((first, _), _)| *first <= slot);
        let ((_, last), node) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *last).then_some(*node)
    }

    /// Returns whether each slot has a node.
    pub(super) fn are_all_owned(&self) -> bool {
        let mut next = 0;
        for ((first, last), _) in &self.ranges {
            if *first > next {
                return false;
            }
            next = next.max(last.saturating_add(1));
        }
        next >= SLOTS
    }
}

/// Reads the address of a node. Without a host, it is the host of the node that was asked.
fn server(value: &Value, asked: &str) -> Option<(String, u16)> {
    let Value::Array(value) = value else { return None };
    let [host, port, ..] = &value[..] else { return None };
    let host = text(host).filter(|host| !host.is_empty()).unwrap_or(asked);
    Some((host.to_owned(), whole(port)?))
}

fn text(value: &Value) -> Option<&str> {
    let Value::BulkString(bytes) = value else { return None };
    str::from_utf8(bytes).ok()
}

fn whole(value: &Value) -> Option<u16> {
    let Value::Int(number) = value else { return None };
    u16::try_from(*number).ok()
}

/// Returns the slot of a key: the CRC-16 (XMODEM) of its hash tag.
fn slot(key: &str) -> u16 {
    let crc = tag(key).bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let is_carried = crc & 0x8000 != 0;
            (crc << 1) ^ if is_carried { 0x1021 } else { 0 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_key_is_that_of_its_tag() {
        // The specification's example: the check value of XMODEM's CRC-16 is 0x31C3.
        assert_eq!(slot("123456789"), 0x31C3);
        // As redis-server 7.0 says (`CLUSTER KEYSLOT`).
        for (key, expected) in [("foo", 12_182), ("bar", 5_061), ("", 0)] {
            assert_eq!(slot(key), expected, "{key}");
        }
        assert_eq!(slot("flowgate:{foo}:a"), 12_182);
        assert_eq!(tag("a{}b{c}"), "a{}b{c}", "an empty tag is none");
        assert_eq!(tag("a{b}{c}"), "b");
        assert_eq!(tag("a{b"), "a{b");
    }

    /// Returns what a node says of ranges.
    fn answer(ranges: &[(i64, i64, i64)]) -> Value {
        let range = |(first, last, port): &(i64, i64, i64)| {
            let host = Value::BulkString(b"127.0.0.1".to_vec());
            let node = |port| Value::Array(vec![host.clone(), Value::Int(port), Value::Nil]);
            let nodes = [node(*port), node(port + 100)];
            let range = [Value::Int(*first), Value::Int(*last)];
            Value::Array(range.into_iter().chain(nodes).collect())
        };
        Value::Array(ranges.iter().map(range).collect())
    }

    #[test]
    fn each_slot_is_of_one_node_or_of_none() {
        let ranges = [(5_061, 5_061, 3), (0, 5_060, 1), (5_062, 10_000, 1), (10_002, 16_383, 2)];
        let slots = Slots::read(&answer(&ranges), "asked").unwrap();
        let name = |key| slots.node_of(key).map(|node| slots.nodes[node].name());
        assert_eq!(name("{bar}:x").as_deref(), Some("127.0.0.1:3"));
        assert_eq!(name("foo").as_deref(), Some("127.0.0.1:2"));
        assert_eq!(name("").as_deref(), Some("127.0.0.1:1"));
        let lost = (0..TRIES).map(|at| at.to_string()).find(|key| slot(key) == 10_001);
        assert_eq!(name(&lost.unwrap()), None);
        assert!(!slots.are_all_owned());
        let whole = [(0, 99, 1), (100, 100, 2), (101, 16_383, 1)];
        assert!(Slots::read(&answer(&whole), "asked").is_some_and(|slots| slots.are_all_owned()));
        assert_eq!(slots.nodes.len(), 3);
        let ports: Vec<u16> = slots.servers().map(|(_, port)| port).collect();
        assert_eq!(ports, [3, 1, 2, 101, 102, 103], "replicas know them, too");
        for (at, node) in slots.nodes.iter().enumerate() {
            assert_eq!(slots.node_of(node.tag.as_deref().unwrap()), Some(at));
        }
    }

    #[test]
    fn a_node_without_a_host_is_where_the_answer_comes_from() {
        let node = Value::Array(vec![Value::Nil, Value::Int(6379)]);
        let range = Value::Array(vec![Value::Int(0), Value::Int(16_383), node]);
        let slots = Slots::read(&Value::Array(vec![range]), "asked").unwrap();
        assert_eq!(slots.nodes[0].name(), "asked:6379");
    }

    #[test]
    fn what_makes_no_sense_is_no_answer() {
        assert_eq!(Slots::read(&Value::Nil, "asked"), None);
        assert_eq!(Slots::read(&Value::Array(vec![Value::Int(1)]), "asked"), None);
        for range in [(-1, 5, 1), (0, 65_536, 1), (0, 5, -1)] {
            assert_eq!(Slots::read(&answer(&[range]), "asked"), None, "{range:?}");
        }
    }
}
