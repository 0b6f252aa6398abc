//! Who may use a route.

use super::compiler::Compiler;
use crate::config::{
    decode::At,
    diagnostics::Problem,
    plan::Access,
    spec::{AccessSpec, leaf::Network},
};

impl Compiler {
    pub(super) fn access(&mut self, at: &At<Box<AccessSpec>>) -> Access {
        let spec = &at.value;
        if !spec.allow.is_written() && !spec.deny.is_written() {
            self.error(
                Problem::error(at.place, "`access` without `allow` and `deny`").help(
                    "write `allow: [10.0.0.0/8]`, or remove it: all clients may use the route",
                ),
            );
        }
        if let Some(at) = spec.allow.as_ref().filter(|at| at.written && at.value.0.0.is_empty()) {
            self.warn(
                Problem::warning(at.place, "no client may use the route")
                    .help("write an address or a range, as in `10.0.0.0/8`, or remove `allow`"),
            );
        }
        let denied = spec.deny.items();
        for allowed in spec.allow.items() {
            let covers = |denied: &&At<Network>| denied.value.0.contains(&allowed.value.0);
            if let Some(denied) = denied.iter().find(covers) {
                let message = format!("`{}` is allowed and denied", allowed.value.0);
                self.warn(
                    Problem::warning(allowed.place, message)
                        .label("never allowed")
                        .also(denied.place, "`deny` wins, whatever the order")
                        .help("remove one; `allow` alone denies all other clients"),
                );
            }
        }
        let allow = spec.allow.is_written().then(|| spec.allow.plain(|network| network.0));
        Access::new(allow, &spec.deny.plain(|network| network.0))
    }
}
