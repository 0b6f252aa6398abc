//! The names of a request's keys, kept if the operator may see them (`admin.show_keys`).

use crate::proxy::worker::Worker;
use crate::{
    config::{Claims, Route},
    flow::{Key, Report, SlotId, Verdict},
    route::Target,
};
use core::net::IpAddr;

/// The keys of one request whose names are not kept yet.
#[derive(Debug)]
pub(crate) struct ShownKeys(Vec<ShownKey>);

#[derive(Debug)]
struct ShownKey {
    slot: SlotId,
    key: u128,
    name: String,
}

impl ShownKeys {
    /// Returns the keys of a request's claims, unless all names are kept.
    pub(crate) fn of(
        worker: &Worker,
        route: &Route,
        claims: &Claims,
        target: &Target<'_>,
        client: IpAddr,
    ) -> Option<Box<Self>> {
        let shown = claims.iter().filter_map(|claim| {
            let Key::Of(key) = claim.key else { return None };
            let rule = route.rules.iter().find(|rule| rule.slot == claim.slot)?;
            let is_new = !worker.records.key_names.knows(key);
            let name = is_new.then(|| rule.key.show(target, client)).flatten()?;
            Some(ShownKey { slot: claim.slot, key, name })
        });
        let shown: Vec<ShownKey> = shown.collect();
        (!shown.is_empty()).then(|| Box::new(Self(shown)))
    }

    /// Keeps the names of keys that are rejected or half full.
    pub(crate) fn keep(&self, worker: &Worker, report: &Report) {
        for ShownKey { slot, key, name } in &self.0 {
            let quota = report.quotas.iter().find(|quota| quota.slot == *slot);
            let is_of_interest = quota.is_some_and(|quota| match quota.verdict {
                Verdict::Rejected(_) | Verdict::DryRunRejected(_) => true,
                Verdict::Passed | Verdict::Delayed => quota.used >= quota.limit / 2,
            });
            if is_of_interest {
                worker.records.key_names.keep(*key, name);
            }
        }
    }
}
