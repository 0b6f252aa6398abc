//! The file that the gateway includes: its text, its check and its replacement.

use super::services::{Service, Services};
use crate::{config::Text, terminal_text::printable};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The first lines of the file.
const HEAD: &str = "\
# Written by `flowgate docker` from the labels of containers. What is changed here is lost.
";

/// The rest of a file beside an included one, only to check that.
const FRAME: &str = "listeners: [{ name: web, listen: 127.0.0.1:0 }]\n";

/// The name of the rule of each route. The beginning keeps it apart from rules that the gateway's own files
/// have for all routes.
const RULE: &str = "docker-limit";

/// The most characters of a problem that a message shows.
const SHOWN: usize = 200;

/// Returns the text of the file. `end: true` shows the gateway that nothing is cut off.
pub(super) fn text(services: &Services) -> String {
    let mut text = HEAD.to_owned();
    text.push_str(&lists(&services.by_age()));
    text.push_str("end: true\n");
    text
}

/// Returns the upstreams and the routes. Each entry is JSON, which YAML reads in the same way: no character
/// of a value ends the value.
fn lists(services: &[&Service]) -> String {
    type Entry = fn(&Service) -> Value;
    let mut text = String::new();
    for (key, entry) in [("upstreams", upstream as Entry), ("routes", route as Entry)] {
        let entries: Vec<_> = services.iter().map(|service| entry(service)).collect();
        text.push_str(key);
        text.push_str(if entries.is_empty() { ": []\n" } else { ":\n" });
        for entry in entries {
            text.push_str("  - ");
            text.push_str(&entry.to_string());
            text.push('\n');
        }
    }
    text
}

/// Returns the name of the upstream and the route of a service. The beginning keeps them apart from those of
/// other files.
fn name(service: &Service) -> String {
    format!("docker-{}", service.name)
}

fn upstream(service: &Service) -> Value {
    let servers = service.servers.iter().map(|server| match server.weight {
        Some(weight) => json!({ "url": server.url, "weight": weight }),
        None => json!({ "url": server.url }),
    });
    json!({ "name": name(service), "servers": servers.collect::<Vec<_>>() })
}

fn route(service: &Service) -> Value {
    let route = &service.route;
    let mut matching = json!({});
    if !route.hosts.is_empty() {
        matching["host"] = json!(route.hosts);
    }
    matching["path_prefix"] = json!(route.path_prefix.as_deref().unwrap_or("/"));
    let mut entry = json!({ "name": name(service), "match": matching, "upstream": name(service) });
    if let Some(limit) = &route.limit {
        let mut rule = json!({ "name": RULE, "limit": limit });
        // The characters are digits; a number that is too large is the configuration's to reject.
        if let Some(burst) = &route.burst {
            rule["burst"] =
                burst.parse::<u64>().map_or_else(|_| json!(burst), |burst| json!(burst));
        }
        if let Some(key) = &route.key {
            rule["key"] = json!(key);
        }
        entry["flow"] = json!([rule]);
    }
    entry
}

/// Checks that a gateway takes the route of a service.
///
/// # Errors
/// It does not, for this reason.
pub(super) fn check(service: &Service) -> Result<(), String> {
    let text = format!("{FRAME}{}", lists(&[service]));
    let read = Text::new(Path::new("labels"), &text).rules();
    let problems = read.err();
    let Some(first) = problems.as_ref().and_then(|problems| problems.list().next()) else {
        return Ok(());
    };
    Err(printable(&format!("{}; {}", first.message, first.help), SHOWN))
}

/// Replaces a file at once, so that its readers find the old text or the new one. Returns false if the file
/// has the text already.
///
/// # Errors
/// The file cannot be read or replaced.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<bool> {
    match fs::read(path) {
        Ok(old) if old == text.as_bytes() => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let aside = aside(path);
    // What a process has left that ended in between.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    Ok(true)
}

/// Returns the name of a file beside another one, which folders and patterns of `include` skip.
fn aside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::labels::tests::container;

    #[test]
    fn the_text_is_read_as_it_was_meant() {
        let none = Services::default();
        assert_eq!(text(&none), format!("{HEAD}upstreams: []\nroutes: []\nend: true\n"));

        let labels = [
            ("host", "a.test"),
            ("path_prefix", "/a/{x}"),
            ("limit", "5/1s"),
            ("burst", "9"),
            ("key", "client_ip"),
        ];
        let services = Services::of(vec![container(&labels)]);
        let text = text(&services);
        let expected = "upstreams:
  - {\"name\":\"docker-shop-1\",\"servers\":[{\"url\":\"http://172.17.0.2:8000\"}]}
routes:
  - {\"name\":\"docker-shop-1\",\"match\":{\"host\":[\"a.test\"],\"path_prefix\":\"/a/{x}\"},\"upstream\":\"docker-shop-1\",\"flow\":[{\"name\":\"docker-limit\",\"limit\":\"5/1s\",\"burst\":9,\"key\":\"client_ip\"}]}
end: true
";
        assert_eq!(text, format!("{HEAD}{expected}"));
        let plan = Text::new(Path::new("gateway.yaml"), &format!("{FRAME}{text}")).rules();
        plan.unwrap_or_else(|problems| panic!("{problems}"));
    }

    #[test]
    fn a_file_is_replaced_only_by_another_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        fs::write(folder.path().join(".routes.yaml.new"), "left by another process").unwrap();
        assert!(replace(&path, "one").unwrap());
        assert!(!replace(&path, "one").unwrap());
        assert!(replace(&path, "two").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(&folder.path().join("missing/routes.yaml"), "one").is_err());
    }
}
