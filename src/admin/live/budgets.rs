//! The rules that several routes share, as one client sees them.

use super::{board::Board, query::Query, route::RuleTracks, view::Around};
use crate::{
    admin::sample::{BudgetList, BudgetRow, RuleRow},
    config::RuleGroup,
};

/// The most rules that routes share.
const MOST_BUDGETS: usize = 40;

/// The most routes that are named for one of them.
const MOST_ROUTES: usize = 20;

/// The rules that routes share and a client sees, by their indexes in the snapshot.
#[derive(Debug, Default)]
pub(crate) struct BudgetsPage {
    /// Those that reject the most first.
    pub indexes: Vec<usize>,
}

impl BudgetsPage {
    /// Returns the rules that have the words of `query`, or are met by a route that has them.
    pub(crate) fn of(board: &Board, query: &Query) -> Self {
        let is_found = |group: &RuleGroup| {
            let owner = group.owner.to_string();
            let routes = board.meeting(group).map(|route| &*route.name);
            let rules = group.rules.iter().map(|rule| &*rule.name);
            let words: Vec<&str> = rules.chain([&*owner]).chain(routes).collect();
            query.finds(&words.join(" "))
        };

        let all = board.budgets().enumerate();
        let found = all.filter(|(_, (group, _))| query.finds("") || is_found(group));
        let mut found: Vec<_> =
            found.map(|(index, (_, tracks))| (index, tracks.rejected())).collect();
        found.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        found.truncate(MOST_BUDGETS);
        Self { indexes: found.into_iter().map(|(index, _)| index).collect() }
    }
}

impl BudgetList {
    pub(super) fn of(board: &Board, page: &BudgetsPage, around: Around<'_>) -> Self {
        let all: Vec<_> = board.budgets().collect();
        let shown = page.indexes.iter().filter_map(|index| all.get(*index));
        let rows = shown.map(|(group, tracks)| BudgetRow::of(board, group, tracks, around));
        Self { total: all.len(), rows: rows.collect() }
    }
}

impl BudgetRow {
    fn of(board: &Board, group: &RuleGroup, tracks: &RuleTracks, around: Around<'_>) -> Self {
        let seen = group.gate.observe(around.now);
        let rules = group.gate_rules();
        let routes = board.meeting(group);
        let shown = routes.clone().take(MOST_ROUTES);
        Self {
            name: group.owner.to_string(),
            parent: group.parent.as_ref().map(ToString::to_string),
            routes: shown.map(|route| route.name.to_string()).collect(),
            more_routes: routes.count().saturating_sub(MOST_ROUTES),
            rules: seen.rules.iter().map(|rule| RuleRow::of(rules, tracks, rule, around)).collect(),
        }
    }
}
