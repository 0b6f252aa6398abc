//! The services of Docker: containers with one name are servers of one route.

use super::{
    engine::Container,
    labels::{Labelled, RouteLabels, Server, asks, is_ready, shown_name},
    output,
};
use std::collections::{BTreeMap, BTreeSet};

/// The most services. A file with as many has some 300 KiB.
const MOST_SERVICES: usize = 1_000;

/// The most servers of a service.
const MOST_SERVERS: usize = 256;

/// A route with its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub name: String,
    pub route: RouteLabels,
    /// The number of services whose first container is older.
    pub older: usize,
    /// In order, each once.
    pub servers: BTreeSet<Server>,
}

/// The services, and a line for each container that is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Services {
    /// By name.
    pub all: BTreeMap<String, Service>,
    pub problems: BTreeSet<String>,
}

impl Services {
    /// Returns the services of containers. Where two containers disagree, the older one wins: a new
    /// container takes no route away.
    pub(super) fn of(mut containers: Vec<Container>) -> Self {
        containers.retain(|container| asks(container) && is_ready(container));
        containers.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        let mut services = Self::default();
        for container in &containers {
            if let Err(why) = services.add(container) {
                services.problems.insert(format!("{}: {why}", shown_name(container)));
            }
        }
        services
    }

    /// Returns the services, the oldest first. Of routes that match equally well, the first one in the file
    /// wins.
    pub(super) fn by_age(&self) -> Vec<&Service> {
        let mut services: Vec<_> = self.all.values().collect();
        services.sort_by_key(|service| service.older);
        services
    }

    fn add(&mut self, container: &Container) -> Result<(), String> {
        let Labelled { name, route, server } = Labelled::read(container)?;
        if let Some(known) = self.all.get_mut(&name) {
            if known.route != route {
                return Err(format!(
                    "its labels differ from those of another container of `{name}`"
                ));
            }
            if known.servers.len() >= MOST_SERVERS {
                return Err(format!("`{name}` has {MOST_SERVERS} servers already"));
            }
            let mut more = known.clone();
            more.servers.insert(server);
            output::check(&more)?;
            *known = more;
            return Ok(());
        }

        let same = self.all.values().find(|other| is_same_match(&other.route, &route));
        if let Some(other) = same {
            return Err(format!("`{}` has the same host and path", other.name));
        }
        if self.all.len() >= MOST_SERVICES {
            return Err(format!("there are {MOST_SERVICES} services already"));
        }
        let older = self.all.len();
        let service = Service { name: name.clone(), route, older, servers: [server].into() };
        output::check(&service)?;
        self.all.insert(name, service);
        Ok(())
    }
}

/// Returns whether a request could take either route, at the same rank.
fn is_same_match(one: &RouteLabels, other: &RouteLabels) -> bool {
    let path = |route: &RouteLabels| route.path_prefix.clone().unwrap_or_else(|| "/".to_owned());
    let hosts = |route: &RouteLabels| -> BTreeSet<String> {
        route.hosts.iter().map(|host| host.to_ascii_lowercase()).collect()
    };
    let hosts_of_one = hosts(one);
    let hosts_of_other = hosts(other);
    let both_any = hosts_of_one.is_empty() && hosts_of_other.is_empty();
    path(one) == path(other) && (both_any || !hosts_of_one.is_disjoint(&hosts_of_other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::labels::tests::container;

    /// A container of an age, the oldest first, with its own address.
    fn aged(age: u8, labels: &[(&str, &str)]) -> Container {
        let mut made = container(labels);
        made.id = format!("id-{age}");
        made.created = age.into();
        let networks = made.network_settings.networks.as_mut().unwrap();
        networks.get_mut("bridge").unwrap().address = format!("172.17.0.{age}");
        made
    }

    #[test]
    fn containers_of_one_name_are_servers_of_one_route() {
        let labels = [("name", "shop"), ("host", "shop.test")];
        let other = [("name", "shop"), ("host", "other.test")];
        let services = Services::of(vec![
            aged(9, &other),
            aged(3, &labels),
            aged(2, &[("name", "shop"), ("host", "shop.test"), ("weight", "2")]),
        ]);
        let shop = &services.all["shop"];
        let urls: Vec<_> =
            shop.servers.iter().map(|server| (&*server.url, server.weight)).collect();
        assert_eq!(urls, [("http://172.17.0.2:8000", Some(2)), ("http://172.17.0.3:8000", None)]);
        assert_eq!(shop.route.hosts, ["shop.test"]);
        let problems: Vec<_> = services.problems.iter().collect();
        assert_eq!(
            problems,
            ["shop-1: its labels differ from those of another container of `shop`"]
        );
    }

    #[test]
    fn a_container_that_asks_for_none_gets_no_route() {
        let mut silent = aged(1, &[("host", "a.test")]);
        silent.labels.as_mut().unwrap().insert("flowgate.enable".to_owned(), "false".to_owned());
        assert_eq!(Services::of(vec![silent]), Services::default());
    }

    #[test]
    fn an_older_container_keeps_its_route() {
        let old = aged(1, &[("name", "old"), ("host", "a.test,b.test")]);
        let new = aged(2, &[("name", "new"), ("host", "B.test")]);
        for containers in [vec![old.clone(), new.clone()], vec![new.clone(), old]] {
            let services = Services::of(containers);
            assert_eq!(services.all.keys().collect::<Vec<_>>(), ["old"]);
            assert_eq!(services.problems.len(), 1, "{:?}", services.problems);
        }
        let path = aged(3, &[("name", "path"), ("host", "b.test"), ("path_prefix", "/api")]);
        assert_eq!(Services::of(vec![new, path]).all.len(), 2);
    }

    #[test]
    fn the_routes_of_older_containers_come_first() {
        let old = aged(1, &[("name", "z"), ("path_prefix", "/a/{x}")]);
        let new = aged(2, &[("name", "a"), ("path_prefix", "/a/{y}")]);
        let services = Services::of(vec![new, old]);
        let names: Vec<_> = services.by_age().iter().map(|service| &*service.name).collect();
        assert_eq!(names, ["z", "a"]);
        let text = output::text(&services);
        let place = |name: &str| text.find(&format!("\"name\":\"docker-{name}\",\"match\""));
        assert!(place("z") < place("a") && place("z").is_some(), "{text}");
    }

    #[test]
    fn the_longest_values_are_read_or_left_out() {
        let hosts: Vec<_> = (100..210).map(|number| format!("{number}.test")).collect();
        let hosts = hosts.join(",");
        let path = format!("/{}", "a".repeat(1_000));
        let labels = [("host", &*hosts), ("path_prefix", &*path), ("limit", "5/1s")];
        let services = Services::of(vec![aged(1, &labels)]);
        assert_eq!(services.all["shop-1"].route.hosts.len(), 110, "{:?}", services.problems);

        let mut long = aged(2, &[("host", "b.test")]);
        long.names = vec![format!("/{}", "n".repeat(1 << 20))];
        let services = Services::of(vec![long]);
        assert!(services.all.is_empty() && services.problems.len() == 1);
        let problem = services.problems.first().unwrap();
        assert!(problem.len() < 1_000, "{}", problem.len());
    }

    #[test]
    fn what_the_configuration_does_not_take_is_left_out_alone() {
        let good = aged(
            1,
            &[("name", "good"), ("host", "a.test"), ("limit", "5/1s"), ("key", "client_ip")],
        );
        let services = |labels: &[(&str, &str)]| Services::of(vec![good.clone(), aged(2, labels)]);
        for labels in [
            &[("name", "bad"), ("host", "*.*")][..],
            &[("name", "bad"), ("host", "b"), ("limit", "fast")],
            &[("name", "bad"), ("host", "b"), ("limit", "1/1s"), ("key", "jwt:sub")],
            &[("name", "bad"), ("host", "b"), ("limit", "1/1s"), ("burst", "0")],
            &[("name", "bad"), ("host", "b"), ("limit", "1/1s"), ("key", "json:model")],
            &[("name", "bad"), ("path_prefix", "api")],
            &[("name", "bad"), ("host", "b"), ("weight", "0")],
            &[("name", "bad"), ("host", "b"), ("weight", "1001")],
        ] {
            let services = services(labels);
            assert_eq!(services.all.keys().collect::<Vec<_>>(), ["good"], "{labels:?}");
            assert_eq!(services.problems.len(), 1, "{labels:?}: {:?}", services.problems);
        }
    }
}
