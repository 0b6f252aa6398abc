//! Networks that are written otherwise than they count, and proxies that are everybody.

use super::compiler::Compiler;
use crate::config::{
    decode::{At, Key, Several},
    diagnostics::{Lint, Problem, SourceSpan},
    spec::{FileSpec, leaf::Network},
};
use ipnet::IpNet;

impl Compiler {
    /// Checks the trusted proxies of the file and of each listener.
    pub(super) fn trusted_proxies(&mut self, spec: &FileSpec) {
        let own = spec.listeners.items().iter().map(|at| &at.value.trusted_proxies);
        for list in [&spec.trusted_proxies].into_iter().chain(own) {
            self.host_bits(list);
            self.everybody(list.items());
        }
    }

    /// Warns of each network of a list that has host bits.
    pub(super) fn host_bits(&mut self, list: &Key<Several<Network>>) {
        for at in list.items() {
            self.host_bits_of(at.value.0, at.span);
        }
    }

    /// Warns of a network with host bits: it may be meant as one address, and counts as a network.
    pub(super) fn host_bits_of(&mut self, network: IpNet, span: SourceSpan) {
        let whole = network.trunc();
        if whole == network {
            return;
        }
        let message = format!("`{network}` has host bits: flowgate takes it for `{whole}`");
        self.warn(
            Problem::warning(Lint::NetworkHostBits, span, message)
                .label(format!("every address of `{whole}`"))
                .help(format!(
                    "write `{whole}` for the network, or `{}` for this one address",
                    network.addr()
                )),
        );
    }

    /// Warns of trusted proxies that are all addresses of IPv4 or of IPv6, in one network or in
    /// several that together have every address.
    fn everybody(&mut self, items: &[At<Network>]) {
        let networks: Vec<IpNet> = items.iter().map(|at| at.value.0.trunc()).collect();
        let all = IpNet::aggregate(&networks);
        let is_whole = |is_v4: bool| {
            all.iter().any(|net| net.prefix_len() == 0 && net.addr().is_ipv4() == is_v4)
        };
        let (whole, is_meant): (_, fn(&IpNet) -> bool) = match (is_whole(true), is_whole(false)) {
            (true, true) => ("every address", |_| true),
            (true, false) => ("every IPv4 address", |network| network.addr().is_ipv4()),
            (false, true) => ("every IPv6 address", |network| network.addr().is_ipv6()),
            (false, false) => return,
        };

        // The largest networks are those that it takes.
        let mut parts: Vec<&At<Network>> =
            items.iter().filter(|at| is_meant(&at.value.0)).collect();
        parts.sort_by_key(|at| at.value.0.prefix_len());
        let Some((largest, others)) = parts.split_first() else { return };
        let message =
            format!("`trusted_proxies` has {whole}: clients choose which address they have");
        let mut problem = Problem::warning(Lint::TrustsEveryone, largest.span, message)
            .label("any client's `X-Forwarded-For` counts")
            .help(
                "write only the networks of your own proxies, as in `trusted_proxies: \
                 [10.0.0.0/24]`, or `trusted_proxies: []` if clients connect directly",
            );
        if largest.value.0.prefix_len() > 0 {
            for other in others {
                problem = problem.also(other.span, "together with this");
            }
        }
        self.warn(problem);
    }
}
