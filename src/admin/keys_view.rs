//! The JSON views of keys: their usage, their rejections and what operators granted them.
//!
//! The admin listener writes them, and commands read them.

use super::sample::Word;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The keys of rules.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeysView {
    /// True if keys have names.
    pub shows_keys: bool,
    /// While the store fails: since when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_failure: Option<String>,
    pub rules: Vec<RuleKeys>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RuleKeys {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The budget; of another shared rule, the place in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    pub rule: String,
    /// The condition of an override.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub algorithm: Word,
    /// True if it rejects nothing.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub dry_run: bool,
    pub limit: u64,
    /// By the shared state, if the rule has no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// By how much that exceeds the limit, if the rule settles costs after the response.
    #[serde(skip_serializing_if = "is_zero")]
    pub debt: u64,
    /// True if the store counts, which is not asked.
    pub in_store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<u32>,
    pub fullest: Vec<KeyView>,
    pub rejected: RejectedKeysView,
    pub grants: Vec<GrantView>,
    #[serde(skip_serializing_if = "BansView::is_empty")]
    pub bans: BansView,
}

/// The usage of a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeyView {
    pub fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    pub used: u64,
    /// The rule's, or that of its plan; 0 from gateways of earlier versions.
    pub limit: u64,
    /// By how much that exceeds the limit, if the rule settles costs after the response.
    #[serde(skip_serializing_if = "is_zero")]
    pub debt: u64,
    /// Until nothing is used, if it sends no more.
    pub reset_ms: u64,
}

/// The keys that a rule rejects most.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RejectedKeysView {
    /// Over how many seconds.
    pub seconds: u64,
    /// Rejections of all keys.
    pub total: u64,
    pub keys: Vec<RejectedKey>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RejectedKey {
    pub fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    pub rejected: u64,
    /// By how much `rejected` may be too high.
    pub error: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GrantView {
    /// `None`: the state of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    pub count: u64,
    pub left: u64,
    pub seconds: u64,
}

/// The clients that a rule rejects for a while.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BansView {
    /// All of them.
    pub total: usize,
    /// Those whose bans end last.
    pub keys: Vec<BanView>,
}

impl BansView {
    pub(crate) const fn is_empty(&self) -> bool {
        self.total == 0
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BanView {
    /// `None`: all clients without a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Until the end of the ban.
    pub seconds: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) const fn is_zero(number: &u64) -> bool {
    *number == 0
}
