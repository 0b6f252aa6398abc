//! The labels of a container, checked: which route it asks for, and where its service listens.

use super::engine::{Container, Network};
use crate::terminal_text::printable;
use core::net::IpAddr;
use std::collections::BTreeMap;

/// The beginning of the names of labels.
const PREFIX: &str = "flowgate.";

/// The labels, without their beginning.
const KNOWN: [&str; 11] = [
    "burst",
    "enable",
    "host",
    "key",
    "limit",
    "name",
    "network",
    "path_prefix",
    "port",
    "scheme",
    "weight",
];

/// The longest value, in bytes.
const LONGEST: usize = 1024;

/// The most characters of a label that a message shows.
const SHOWN: usize = 64;

/// The label by which Docker Compose names a service, and that of its project.
const SERVICE: &str = "com.docker.compose.service";
const PROJECT: &str = "com.docker.compose.project";

/// A server with the route that its container asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labelled {
    /// Servers with the same name belong to one route.
    pub name: String,
    pub route: RouteLabels,
    pub server: Server,
}

/// The route that labels describe. Containers of one service say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteLabels {
    /// Any host if it is empty.
    pub hosts: Vec<String>,
    pub path_prefix: Option<String>,
    pub limit: Option<String>,
    pub burst: Option<String>,
    pub key: Option<String>,
}

/// The address of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    pub url: String,
    pub weight: Option<u32>,
}

impl Labelled {
    /// Reads the labels of a running container.
    ///
    /// # Errors
    /// It gets no route, for this reason.
    pub(super) fn read(container: &Container) -> Result<Self, String> {
        let none = BTreeMap::new();
        let labels = container.labels.as_ref().unwrap_or(&none);
        let labels = Labels(labels);
        labels.check_names()?;
        let route = RouteLabels {
            hosts: labels.hosts()?,
            path_prefix: labels.value("path_prefix", "a path", is_of_path)?,
            limit: labels.value("limit", "a limit, as in `100/1m`", is_of_limit)?,
            burst: labels.value("burst", "a number", |sign| sign.is_ascii_digit())?,
            key: labels.key()?,
        };
        if route.hosts.is_empty() && route.path_prefix.is_none() {
            return Err("it has neither `flowgate.host` nor `flowgate.path_prefix`".to_owned());
        }
        if route.limit.is_none() && (route.burst.is_some() || route.key.is_some()) {
            return Err(
                "it has `flowgate.burst` or `flowgate.key` without `flowgate.limit`".to_owned()
            );
        }
        let name = labels.service(container)?;
        let server = labels.server(container)?;
        Ok(Self { name, route, server })
    }
}

/// Returns whether a container asks for a route.
pub(super) fn asks(container: &Container) -> bool {
    let enable = container.labels.as_ref().and_then(|labels| labels.get("flowgate.enable"));
    enable.is_some_and(|enable| enable == "true")
}

/// Returns whether a container is ready for requests, as far as Docker knows.
pub(super) fn is_ready(container: &Container) -> bool {
    let waits = ["(unhealthy)", "(health: starting)", "(Paused)"];
    !waits.iter().any(|health| container.status.contains(health))
}

/// Returns a name for messages.
pub(super) fn shown_name(container: &Container) -> String {
    let name = container.names.first().map_or(container.id.as_str(), String::as_str);
    printable(name.trim_start_matches('/'), SHOWN)
}

struct Labels<'a>(&'a BTreeMap<String, String>);

impl Labels<'_> {
    /// Checks that all labels for flowgate are known, so that a slip does not go unseen.
    fn check_names(&self) -> Result<(), String> {
        let own = self.0.keys().filter_map(|name| name.strip_prefix(PREFIX));
        match own.filter(|name| !KNOWN.contains(name)).min() {
            None => Ok(()),
            Some(other) => Err(format!("there is no label `{PREFIX}{}`", printable(other, SHOWN))),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        let value = self.0.get(&format!("{PREFIX}{name}"))?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the value of a label, all of whose characters must fit.
    fn value(
        &self,
        name: &str,
        what: &str,
        fits: impl Fn(char) -> bool,
    ) -> Result<Option<String>, String> {
        let Some(value) = self.text(name) else { return Ok(None) };
        if value.len() <= LONGEST && value.chars().all(fits) {
            return Ok(Some(value.to_owned()));
        }
        Err(format!("`{PREFIX}{name}` is not {what}: `{}`", printable(value, SHOWN)))
    }

    /// Returns the key of the limit. The number of members of bodies that a request's rules may read is
    /// bounded over all files of the gateway, so labels have none of them.
    fn key(&self) -> Result<Option<String>, String> {
        let key = self.value("key", "a key, as in `client_ip`", is_of_key)?;
        if key.as_deref().is_some_and(|key| key.starts_with("json:")) {
            return Err("`flowgate.key` cannot be a member of the body".to_owned());
        }
        Ok(key)
    }

    fn hosts(&self) -> Result<Vec<String>, String> {
        let fits = |sign: char| sign.is_ascii_alphanumeric() || "-._*, ".contains(sign);
        let hosts = self.value("host", "a host, or several behind commas", fits)?;
        let hosts = hosts.as_deref().unwrap_or_default().split(',').map(str::trim);
        Ok(hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect())
    }

    /// Returns the name of the service: that of the label, of Docker Compose, or of the container.
    fn service(&self, container: &Container) -> Result<String, String> {
        if let Some(name) =
            self.value("name", "a name of letters, digits, `-`, `_` and `.`", is_of_name)?
        {
            return Ok(name);
        }
        let part = |name: &str| self.0.get(name).filter(|value| !value.is_empty());
        let name = match (part(PROJECT), part(SERVICE)) {
            (Some(project), Some(service)) => format!("{project}-{service}"),
            (None, Some(service)) => service.clone(),
            (_, None) => {
                let name = container.names.first().map_or(&*container.id, String::as_str);
                name.trim_start_matches('/').to_owned()
            }
        };
        if !name.is_empty() && name.chars().all(is_of_name) {
            return Ok(name);
        }
        Err(format!(
            "its name `{}` is none of a route: write `flowgate.name`",
            printable(&name, SHOWN)
        ))
    }

    fn server(&self, container: &Container) -> Result<Server, String> {
        let scheme = match self.text("scheme") {
            None | Some("http") => "http",
            Some("https") => "https",
            Some(_) => return Err("`flowgate.scheme` is neither `http` nor `https`".to_owned()),
        };
        let weight = match self.text("weight").map(str::parse::<u32>) {
            None => None,
            Some(Ok(weight)) => Some(weight),
            Some(Err(_)) => return Err("`flowgate.weight` is not a number".to_owned()),
        };
        let port = self.port(container)?;
        let url = match self.address(container)? {
            IpAddr::V4(address) => format!("{scheme}://{address}:{port}"),
            IpAddr::V6(address) => format!("{scheme}://[{address}]:{port}"),
        };
        Ok(Server { url, weight })
    }

    /// Returns the port of the label, or the only one that the container has.
    fn port(&self, container: &Container) -> Result<u16, String> {
        if let Some(port) = self.text("port") {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0);
            return port.ok_or_else(|| "`flowgate.port` is not a port".to_owned());
        }
        let ports = container.ports.iter().flatten().filter(|port| port.kind == "tcp");
        let mut ports: Vec<_> = ports.map(|port| port.private_port).collect();
        ports.sort_unstable();
        ports.dedup();
        match &ports[..] {
            [port] if *port > 0 => Ok(*port),
            [] => Err("it exposes no port: write `flowgate.port`".to_owned()),
            _ => Err("it exposes several ports: write `flowgate.port`".to_owned()),
        }
    }

    /// Returns the address in the network of the label, or in the first one by name.
    fn address(&self, container: &Container) -> Result<IpAddr, String> {
        if container.host_config.network_mode == "host" {
            return Ok(IpAddr::from([127, 0, 0, 1]));
        }
        let networks = container.network_settings.networks.iter().flatten();
        let wanted = self.text("network");
        let mut networks = networks.filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
        let address = networks.find_map(|(_, network)| address_in(network));
        address.ok_or_else(|| match wanted {
            Some(network) => {
                format!("it has no address in the network `{}`", printable(network, SHOWN))
            }
            None => "it has no address in any network".to_owned(),
        })
    }
}

fn address_in(network: &Network) -> Option<IpAddr> {
    [&network.address, &network.address_v6].into_iter().find_map(|address| address.parse().ok())
}

/// Signs of paths that have no other meaning in a configuration: `$` begins a variable.
fn is_of_path(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || "/-._~%!&'()*+,;=:@{}".contains(sign)
}

fn is_of_limit(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || "/_. ".contains(sign)
}

fn is_of_key(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || ":-_.".contains(sign)
}

fn is_of_name(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || "-_.".contains(sign)
}

#[cfg(test)]
pub(in crate::docker) mod tests {
    use super::*;
    use crate::docker::engine::Port;
    use proptest::prelude::*;

    /// A container with these labels for flowgate.
    pub(in crate::docker) fn container(labels: &[(&str, &str)]) -> Container {
        let all = [("enable", "true")].iter().chain(labels);
        let labels = all.map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()));
        let network = Network { address: "172.17.0.2".to_owned(), ..Network::default() };
        let mut container = Container {
            id: "0123".to_owned(),
            names: vec!["/shop-1".to_owned()],
            labels: Some(labels.collect()),
            ports: Some(vec![Port { private_port: 8000, kind: "tcp".to_owned() }]),
            ..Container::default()
        };
        container.network_settings.networks = Some([("bridge".to_owned(), network)].into());
        container
    }

    #[test]
    fn the_only_port_and_the_first_network_are_usual() {
        let read = Labelled::read(&container(&[("host", "a.test, b.test")])).unwrap();
        assert_eq!((&*read.name, &*read.server.url), ("shop-1", "http://172.17.0.2:8000"));
        assert_eq!(read.route.hosts, ["a.test", "b.test"]);

        let mut other = container(&[("path_prefix", "/api"), ("port", "9"), ("scheme", "https")]);
        let networks = other.network_settings.networks.as_mut().unwrap();
        let v6 = Network { address_v6: "fd00::2".to_owned(), ..Network::default() };
        networks.insert("front".to_owned(), v6);
        let labels = other.labels.as_mut().unwrap();
        labels.insert("flowgate.network".to_owned(), "front".to_owned());
        labels.insert(SERVICE.to_owned(), "web".to_owned());
        labels.insert(PROJECT.to_owned(), "shop".to_owned());
        let read = Labelled::read(&other).unwrap();
        assert_eq!((&*read.name, &*read.server.url), ("shop-web", "https://[fd00::2]:9"));

        other.host_config.network_mode = "host".to_owned();
        assert_eq!(Labelled::read(&other).unwrap().server.url, "https://127.0.0.1:9");
    }

    #[test]
    fn what_is_not_clear_is_named() {
        let reason = |container: &Container| Labelled::read(container).unwrap_err();
        for (labels, expected) in [
            (&[][..], "neither `flowgate.host` nor `flowgate.path_prefix`"),
            (&[("hots", "a.test")], "there is no label `flowgate.hots`"),
            (&[("host", "a.test\"}"), ("port", "1")], "`flowgate.host` is not a host"),
            (&[("host", "${HOME}")], "`flowgate.host` is not a host"),
            (&[("path_prefix", "/a\nroutes:")], "`flowgate.path_prefix` is not a path"),
            (&[("host", "a"), ("port", "0")], "`flowgate.port` is not a port"),
            (&[("host", "a"), ("port", "70000")], "`flowgate.port` is not a port"),
            (&[("host", "a"), ("scheme", "unix")], "neither `http` nor `https`"),
            (&[("host", "a"), ("weight", "-1")], "`flowgate.weight` is not a number"),
            (&[("host", "a"), ("key", "client_ip")], "without `flowgate.limit`"),
            (&[("host", "a"), ("name", "a b")], "`flowgate.name` is not a name"),
            (&[("host", "a"), ("network", "none")], "no address in the network `none`"),
        ] {
            let found = reason(&container(labels));
            assert!(found.contains(expected), "{labels:?}: {found}");
        }
        let mut ports = container(&[("host", "a")]);
        ports.ports = Some(vec![]);
        assert!(reason(&ports).contains("exposes no port"));
        let port = |private_port| Port { private_port, kind: "tcp".to_owned() };
        ports.ports = Some(vec![port(1), port(2), port(1)]);
        assert!(reason(&ports).contains("several ports"));
    }

    #[test]
    fn a_container_that_is_not_healthy_gets_no_requests() {
        let with = |status: &str| Container { status: status.to_owned(), ..Container::default() };
        for status in ["Up 2 minutes", "Up 1 second (healthy)", ""] {
            assert!(is_ready(&with(status)), "{status}");
        }
        for status in
            ["Up 2 minutes (unhealthy)", "Up 1 second (health: starting)", "Up 1 hour (Paused)"]
        {
            assert!(!is_ready(&with(status)), "{status}");
        }
    }

    proptest! {
        #[test]
        fn no_value_has_a_sign_that_yaml_or_variables_read(value in "\\PC*|.{0,20}", label in 0..KNOWN.len()) {
            let labels = [("host", "a"), ("limit", "1/1s"), (KNOWN[label], &*value)];
            if let Ok(Labelled { name, route, server }) = Labelled::read(&container(&labels)) {
                let RouteLabels { hosts, path_prefix, limit, burst, key } = route;
                let mut all = vec![name, server.url];
                all.extend(hosts);
                all.extend([path_prefix, limit, burst, key].into_iter().flatten());
                let is_plain = |text: &String| !text.chars().any(|sign| sign.is_control() || "\"\\$#\n".contains(sign));
                prop_assert!(all.iter().all(is_plain), "{:?}", all);
            }
        }
    }
}
