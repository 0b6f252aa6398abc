//! Numbers of a rule that depend on the client's plan.

use super::{
    LimitSpec, RuleSpec,
    file::FileSpec,
    keys::keys,
    leaf::{FileName, Integer, PlanNumber, PlanPart, Text},
    rule::Count,
};
use crate::config::{
    decode::{At, Either, Entries},
    diagnostics::Source,
};
use std::path::PathBuf;

/// The numbers of a plan, in either form.
pub(in crate::config) type PlanNumbers = Either<PlanNumber, PlanSpec>;

keys! {
    /// Numbers that depend on the client's plan. The counts stay those of the rule's `key`; only the
    /// numbers differ. Clients without a plan get the rule's own. Write `limits`, `file` or both.
    struct PlansSpec: "plans" {
        /// What names the plan: a part of a key, as in `jwt:plan`, `header:x-plan`, `user` or
        /// `host`; or `key`, if the plans are those of single keys of the rule.
        by: PlanPart;
        /// The numbers of each plan, as in `{ gold: 1000/1m, silver: { limit: 300/1m, burst: 50 } }`.
        /// The windows are that of the rule.
        limits: Entries<Text, PlanNumbers>, else "none";
        /// A file of plans: CSV (RFC 4180) whose first line is `key,limit` or `key,limit,burst`. A
        /// limit is written as here, as in `50/1h`; for `concurrency` it is a number. flowgate
        /// watches the file and reloads it like this file.
        #[example = "accounts.csv"]
        file: FileName, else "–";
    }

    /// The numbers of a plan. For missing numbers, the rule's apply.
    struct PlanSpec: "a plan" {
        /// How many requests per time, if the rule has a `limit`.
        limit: LimitSpec, else "–";
        /// How many requests may pass at once (`token_bucket` and `leaky_bucket`).
        burst: Count, else "the rule's, or the default for the plan's `limit`";
        /// How many requests may be in flight at once, if the rule has `concurrency`.
        concurrency: Integer<1, 1_000_000_000>, else "–";
    }
}

impl RuleSpec {
    /// Returns the file of plans that the rule names.
    fn plan_file(&self) -> Option<At<PathBuf>> {
        self.plans.value()?.file.path()
    }

    /// Resolves the relative name of this file from the folder of the file that it stands in.
    pub(super) fn resolve_plans(&mut self, source: &Source) {
        if let Some(at) = &mut self.plans.at {
            at.value.file.resolve(source);
        }
    }
}

impl FileSpec {
    /// Returns the files of plans, wherever rules name them.
    pub(in crate::config) fn plan_files(&self) -> Vec<At<PathBuf>> {
        let routes = self.routes.items().iter().flat_map(|at| at.value.1.flow.items());
        let own = routes.filter_map(|at| at.value.plan_file());
        own.chain(self.shared_rules().filter_map(|at| at.value.1.plan_file())).collect()
    }
}
