//! How keys are shown.

use crate::{
    config::{GateRules, RouteRule, Snapshot},
    key_names::KeyNames,
    route::fingerprint_text,
};
use std::sync::Arc;

/// Names keys, if they may be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// `None`: by fingerprint only.
    pub known: Option<&'a KeyNames>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(snapshot: &Snapshot, known: &'a KeyNames) -> Self {
        Self { known: Some(known).filter(|_| snapshot.settings.shows_keys()) }
    }

    pub(super) fn find(self, key: u128) -> Option<Arc<str>> {
        self.known?.find(key)
    }

    /// Returns a key as the log has it. `text` is what the operator wrote.
    pub(super) fn in_log(self, key: u128, text: &str) -> String {
        if self.known.is_some() { text.to_owned() } else { fingerprint_text(key) }
    }
}

/// Returns the rules of a gate that have this name: the rule itself and its overrides, each with
/// its identity.
pub(super) fn rules_of<'a>(
    rules: GateRules<'a>,
    name: &'a str,
) -> impl Iterator<Item = &'a RouteRule> + use<'a> {
    rules.rules.iter().filter(move |rule| *rule.name == *name)
}
