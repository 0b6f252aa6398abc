//! How much memory the states of a file's rules take.

use crate::config::plan::Plan;

/// Returns the most memory in bytes that the states of all rules take, with as many keys as each
/// may have: the sum of what `flowgate check` says of each rule.
pub fn most_bytes(plan: &Plan) -> u64 {
    let rules = plan.each_rule();
    let each = rules.map(|(rule, plan)| rule.most_bytes(plan.priority.is_some()));
    each.fold(0, u64::saturating_add)
}
