//! The servers of an upstream. Those that it had before are kept, with their counts and their health.

use crate::{
    config::{
        plan::{ServerPlan, UpstreamPlan, schedule},
        snapshot::{Members, Names, Server, Snapshot},
        spec::Resolve,
    },
    route::Seed,
};
use std::{collections::HashMap, net::IpAddr, sync::Arc};

/// The identity of a server: its host, its port, and the address that its host was resolved to.
type Address = (Arc<str>, u16, Option<IpAddr>);

/// The longest cycle of turns. Beyond it weights are rounded.
const MAX_CYCLE: u64 = 1000;

/// The most former servers that keep their numbers.
const FORMER_MAX: usize = 1000;

/// The numbers of servers, by which workers keep their connections. A server that comes back has its
/// former number, unless many others came and went; no number is given to two addresses.
#[derive(Debug, Default)]
pub(super) struct ServerIds {
    ids: HashMap<Address, usize>,
    next: usize,
}

impl ServerIds {
    fn of(&mut self, address: &Address) -> usize {
        *self.ids.entry(address.clone()).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Forgets former servers if they are many. `known` has those that there are.
    fn forget_former(&mut self, known: &HashMap<Address, Arc<Server>>) {
        if self.ids.len() > known.len() + FORMER_MAX {
            self.ids.retain(|address, _| known.contains_key(address));
        }
    }
}

/// Makes the servers of upstreams.
#[derive(Debug)]
pub(super) struct ServerBuilder<'i> {
    ids: &'i mut ServerIds,
    known: HashMap<Address, Arc<Server>>,
    names: Names,
}

impl<'i> ServerBuilder<'i> {
    /// `snapshot` has the servers that are known.
    pub(super) fn new(snapshot: Option<&Snapshot>, ids: &'i mut ServerIds) -> Self {
        let mut known = HashMap::new();
        let mut names = Names::new();
        for upstream in snapshot.iter().flat_map(|snapshot| &snapshot.upstreams) {
            let members = upstream.members();
            known.extend(
                members.servers.iter().map(|server| (address_of(server), Arc::clone(server))),
            );
            names.extend(members.names.clone());
        }
        ids.forget_former(&known);
        Self { ids, known, names }
    }

    /// Notes the addresses that a name has now.
    pub(super) fn resolve(&mut self, name: &Arc<str>, addresses: &Arc<[IpAddr]>) {
        self.names.insert(Arc::clone(name), Arc::clone(addresses));
    }

    /// Returns the servers of an upstream that had the servers `old`. A name that is resolved is a
    /// server by each of its addresses; another one is resolved whenever a connection opens.
    pub(super) fn members(&mut self, plan: &UpstreamPlan, old: Option<&Members>) -> Members {
        let mut names = Names::new();
        let mut servers = Vec::with_capacity(plan.servers.len());
        for server in &plan.servers {
            let host = &server.endpoint.host;
            let known = self
                .names
                .get(host)
                .filter(|_| plan.options.resolve != Resolve::OnConnect)
                .cloned();
            for ip in known.iter().flat_map(|addresses| &**addresses) {
                servers.push(self.server(server, Some(*ip), old));
            }
            if known.as_ref().is_none_or(|addresses| addresses.is_empty()) {
                servers.push(self.server(server, None, old));
            }
            names.extend(known.map(|addresses| (Arc::clone(host), addresses)));
        }
        let schedule = turns(&servers, false);
        let backup_schedule = turns(&servers, true);
        Members { servers, schedule, backup_schedule, names }
    }

    fn server(
        &mut self,
        plan: &ServerPlan,
        ip: Option<IpAddr>,
        old: Option<&Members>,
    ) -> Arc<Server> {
        let ServerPlan { endpoint, weight, is_backup } = plan;
        let address = (Arc::clone(&endpoint.host), endpoint.port, ip);
        let is_it = |server: &&Arc<Server>| address_of(server) == address;
        let before = old.and_then(|old| old.servers.iter().find(is_it));

        let is_same = |server: &&Arc<Server>| {
            server.weight == *weight
                && server.is_backup == *is_backup
                && server.is_tls == endpoint.is_tls
        };
        if let Some(before) = before.filter(is_same) {
            return Arc::clone(before);
        }

        let known = self.known.get(&address);
        let server = Arc::new(Server {
            id: self.ids.of(&address),
            hash: hash_of(&address),
            weight: *weight,
            is_backup: *is_backup,
            in_flight: known.map_or_else(Arc::default, |known| Arc::clone(&known.in_flight)),
            meter: known.map_or_else(Arc::default, |known| Arc::clone(&known.meter)),
            health: before.map_or_else(Arc::default, |before| Arc::clone(&before.health)),
            host: Arc::clone(&endpoint.host),
            port: endpoint.port,
            ip,
            is_tls: endpoint.is_tls,
        });

        self.known.insert(address, Arc::clone(&server));
        server
    }
}

fn address_of(server: &Server) -> Address {
    (Arc::clone(&server.host), server.port, server.ip)
}

/// Returns what stands for an address in every process.
fn hash_of((host, port, ip): &Address) -> u64 {
    let text = ip.map_or_else(|| format!("{host}:{port}"), |ip| format!("{ip}:{port}"));
    Seed::new([0, 0]).hash(text.as_bytes())
}

/// Returns the places of the servers that are backups, or of those that are not, in the order of their
/// turns. The addresses of names may make the cycle too long: then weights are rounded, and beyond a
/// thousand servers all are the same.
fn turns(servers: &[Arc<Server>], is_backup: bool) -> Vec<u16> {
    let meant = servers.iter().enumerate().filter(|(_, server)| server.is_backup == is_backup);
    let (places, weights): (Vec<_>, Vec<u64>) =
        meant.map(|(place, server)| (place, u64::from(server.weight))).unzip();
    let sum = weights.iter().sum::<u64>().max(1);
    let room = MAX_CYCLE.saturating_sub(weights.len() as u64);
    let rounded =
        || schedule(&weights.iter().map(|weight| weight * room / sum + 1).collect::<Vec<_>>());
    let one_each = || (0..=u16::MAX).take(places.len()).collect();
    let turns: Vec<u16> = schedule(&weights).or_else(rounded).unwrap_or_else(one_each);
    let place_of = |turn: u16| u16::try_from(*places.get(usize::from(turn))?).ok();
    turns.into_iter().filter_map(place_of).collect()
}

#[cfg(test)]
mod tests {
    use super::{FORMER_MAX, turns};
    use crate::config::{Live, tests::plan};
    use crate::flow::Instant;
    use std::{collections::HashSet, net::IpAddr, sync::Arc};

    const FILE: &str = "\
listeners: [{ name: web, listen: '127.0.0.1:8080' }]
upstreams:
  - { name: a, servers: [{ url: 'http://shop:80', weight: 2 }, { url: 'http://10.0.0.9:80' }] }
  - { name: b, servers: [{ url: 'http://shop:81' }], resolve: 0s }
routes:
  - { name: a, match: { path: /a }, upstream: a }
  - { name: b, match: { path: /b }, upstream: b }
";

    fn addresses(last: &[u8]) -> Arc<[IpAddr]> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    fn shown(live: &Live, upstream: usize) -> Vec<(usize, String)> {
        let snapshot = live.load_full();
        let members = snapshot.upstreams[upstream].members();
        members.servers.iter().map(|server| (server.id, server.address())).collect()
    }

    fn is(id: usize, address: &str) -> (usize, String) {
        (id, address.to_owned())
    }

    #[test]
    fn each_address_of_a_name_is_a_server_that_stays_what_it_is() {
        let live = Live::start(plan(FILE), Instant::EPOCH);
        assert_eq!(shown(&live, 0), [is(0, "shop:80"), is(1, "10.0.0.9:80")]);
        live.resolve(&"shop".into(), &addresses(&[1, 2]));
        let before = [is(3, "10.0.0.1:80"), is(4, "10.0.0.2:80"), is(1, "10.0.0.9:80")];
        assert_eq!(shown(&live, 0), before);
        assert_eq!(shown(&live, 1), [is(2, "shop:81")], "which does not want it");
        let old = Arc::clone(&*live.load().upstreams[0].members());
        assert_eq!(old.schedule.len(), 5);
        // An address comes, another one goes, a third one stays with all that is known of it.
        live.resolve(&"shop".into(), &addresses(&[2, 3]));
        assert_eq!(
            shown(&live, 0),
            [is(4, "10.0.0.2:80"), is(5, "10.0.0.3:80"), is(1, "10.0.0.9:80")]
        );
        let new = Arc::clone(&*live.load().upstreams[0].members());
        assert!(Arc::ptr_eq(&old.servers[1], &new.servers[0]));
        assert!(Arc::ptr_eq(&old.servers[2], &new.servers[2]));
        // One that comes back has its number, and so its connections.
        live.resolve(&"shop".into(), &addresses(&[1, 2]));
        assert_eq!(shown(&live, 0), before);
        // A reload keeps the addresses, and gives them to other upstreams that want them.
        let text = FILE.replace(", resolve: 0s", "").replace("weight: 2", "weight: 3");
        live.apply(plan(&text), Instant::EPOCH, &mut crate::config::Retired::default());
        assert_eq!(shown(&live, 0), before);
        assert_eq!(shown(&live, 1), [is(6, "10.0.0.1:81"), is(7, "10.0.0.2:81")]);
        let newer = Arc::clone(&*live.load().upstreams[0].members());
        assert!(Arc::ptr_eq(&newer.servers[1].in_flight, &new.servers[0].in_flight));
        // Without addresses it is asked by its name.
        live.resolve(&"shop".into(), &addresses(&[]));
        assert_eq!(shown(&live, 1), [is(2, "shop:81")]);
    }

    #[test]
    fn a_name_whose_addresses_keep_changing_takes_no_more_and_more_memory() {
        let live = Live::start(plan(FILE), Instant::EPOCH);
        let mut seen = HashSet::new();
        for round in 0..5000u32 {
            let changing = IpAddr::from((0x0a01_0000 + round).to_be_bytes());
            live.resolve(&"shop".into(), &Arc::from([changing, [10, 0, 0, 1].into()]));
            let [(new, _), (stays, _), (static_one, _)] = &shown(&live, 0)[..] else { panic!() };
            assert!(seen.insert(*new), "{new} is of two addresses");
            assert_eq!((*stays, *static_one), (4, 1));
        }
        let ids = live.servers().ids.len();
        assert!(ids <= FORMER_MAX + 5, "{ids}");
    }

    #[test]
    fn many_addresses_have_turns_too() {
        let live = Live::start(plan(&FILE.replace("weight: 2", "weight: 997")), Instant::EPOCH);
        live.resolve(&"shop".into(), &addresses(&[1, 2, 3]));
        let members = Arc::clone(&*live.load().upstreams[0].members());
        let turns = turns(&members.servers, false);
        let share = |place: u16| turns.iter().filter(|turn| **turn == place).count();
        assert!(turns.len() <= 1000 && share(3) == 1, "{}", share(3));
        assert!([0, 1, 2].map(share).iter().all(|share| *share > 300));
    }
}
