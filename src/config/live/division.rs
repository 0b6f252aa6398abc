//! Rules that gateways share, divided among them while the store fails.

use crate::flow::{self, Algorithm};
/// Among how many gateways shared rules are divided while their store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Those that the store has seen.
    pub gateways: u32,
    /// Whether states cannot be exchanged, so that rules of which they are hold divided.
    pub is_cut_off: bool,
    /// How often the rules have changed of which the store [refuses](crate::config::Exchange::is_refused) that,
    /// which hold divided in any case.
    pub refusals: u64,
}

/// Returns the rules as they hold here while the store fails: the shared ones divided, of which
/// there is told whether the store refuses to exchange their states.
pub(super) fn divided(
    rules: &flow::Rules,
    shared: impl Iterator<Item = Option<bool>>,
    is_paced: bool,
    Division { gateways, is_cut_off, .. }: Division,
) -> flow::Rules {
    let mut rules = rules.clone();
    for (rule, is_refused) in rules.flow.iter_mut().zip(shared) {
        if let Some(is_refused) = is_refused {
            let is_exchanged = matches!(rule.algorithm, Algorithm::Synced(_));
            let is_whole = is_exchanged && !is_cut_off && !is_refused;
            rule.algorithm = rule.algorithm.among(if is_whole { 1 } else { gateways });
        }
    }
    if is_paced {
        rules.pacing = rules.pacing.map(|pacing| pacing.among(gateways));
    }
    rules
}
