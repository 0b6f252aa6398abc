//! Rules that gateways share, divided among them while the store fails.

use crate::flow::{self, Algorithm};
/// Among how many gateways shared rules are divided while their store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalShare {
    /// Those that the store has seen.
    pub gateways: u32,
    /// True if the store cannot be reached, so that synced rules are divided too.
    pub is_cut_off: bool,
    /// Counts changes of which rules the store [rejects](crate::config::RuleSync::is_rejected) to
    /// sync; those are divided in any case.
    pub sync_rejections: u64,
}

/// Returns the rules as they hold here while the store fails, with the shared ones divided.
/// `shared` says of each shared rule whether the store rejects its syncs.
pub(super) fn divided(
    rules: &flow::Rules,
    shared: impl Iterator<Item = Option<bool>>,
    is_paced: bool,
    LocalShare { gateways, is_cut_off, .. }: LocalShare,
) -> flow::Rules {
    let mut rules = rules.clone();
    for (rule, is_rejected) in rules.flow.iter_mut().zip(shared) {
        if let Some(is_rejected) = is_rejected {
            let is_synced = matches!(rule.algorithm, Algorithm::Synced(_));
            let is_whole = is_synced && !is_cut_off && !is_rejected;
            rule.algorithm = rule.algorithm.among(if is_whole { 1 } else { gateways });
        }
    }
    if is_paced {
        rules.pacing = rules.pacing.map(|pacing| pacing.among(gateways));
    }
    rules
}
