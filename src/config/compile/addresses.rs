//! Networks of clients and proxies, in the IPv4 form that clients' addresses are compared in.

use super::compiler::Compiler;
use crate::{
    config::{
        decode::{Key, Several},
        spec::{FileSpec, leaf::Network, values},
    },
    route::Nat64,
};
use ipnet::IpNet;
use std::hash::{DefaultHasher, Hash, Hasher};

impl Compiler {
    /// Compiles the prefixes behind which an IPv4 address stands. All networks are read by them, so
    /// this comes first.
    pub(super) fn nat64(&mut self, spec: &FileSpec) -> Nat64 {
        self.nat64 = Nat64::new(spec.nat64.plain(|prefix| prefix.0));
        self.nat64.clone()
    }

    /// Compiles networks.
    pub(super) fn networks(&mut self, key: &Key<Several<Network>>) -> Vec<IpNet> {
        let items = key.items().iter();
        let networks = items.filter_map(|at| {
            self.keep(values::canonical(at.value.0, &self.nat64), at.span).map(|at| at.value)
        });
        networks.collect()
    }

    /// Returns a number that differs if networks are read in another way.
    pub(super) fn nat64_print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.nat64.further().hash(&mut hasher);
        hasher.finish()
    }
}
