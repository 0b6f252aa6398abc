//! Ports that nobody else has, in place of those that the pages show.

use std::{fs, net::TcpListener, path::Path};

/// The ports that pages and the files they use have.
const SHOWN: [u16; 4] = [8080, 8443, 9000, 9901];

/// Ports from here on, below those that the system gives to whoever asks for any.
const FIRST: u16 = 10_000;
const LAST: u16 = 32_000;

/// Which port stands for which.
#[derive(Debug)]
pub(crate) struct Ports {
    pairs: Vec<(String, String)>,
}

impl Ports {
    /// Picks ports at random that are free everywhere.
    pub(crate) fn free() -> Self {
        let mut pairs: Vec<(String, String)> = Vec::new();
        while let Some(shown) = SHOWN.get(pairs.len()) {
            let port = fastrand::u16(FIRST..=LAST);
            let real = format!(":{port}");
            let is_new = pairs.iter().all(|(_, other)| *other != real);
            if is_new && TcpListener::bind(("0.0.0.0", port)).is_ok() {
                pairs.push((format!(":{shown}"), real));
            }
        }
        Self { pairs }
    }

    /// Has the files in `checkout` use them, and the demo's copy of its configuration, which is as a
    /// first demo would have left it.
    pub(crate) fn prepare(&self, checkout: &Path) {
        let demo = checkout.join("flowgate-demo");
        fs::create_dir(&demo).expect("made");
        fs::copy(checkout.join("gateway.yaml"), demo.join("gateway.yaml")).expect("copied");
        for folder in [checkout, &demo, &checkout.join("examples"), &checkout.join("docs/pictures")]
        {
            for entry in fs::read_dir(folder).expect("it is a folder") {
                let path = entry.expect("it is listed").path();
                if path.extension().is_some_and(|kind| kind == "yaml") {
                    let text = fs::read_to_string(&path).expect("it is text");
                    fs::write(&path, self.real(&text)).expect("written");
                }
            }
        }
    }

    /// Returns `text` with the ports in use.
    pub(crate) fn real(&self, text: &str) -> String {
        let pairs = self.pairs.iter().map(|(shown, real)| (&**shown, &**real));
        replaced(text, pairs)
    }

    /// Returns `text` as the page would show it.
    pub(crate) fn shown(&self, text: &str) -> String {
        let pairs = self.pairs.iter().map(|(shown, real)| (&**real, &**shown));
        replaced(text, pairs).replace("(left from an earlier demo)", "(new)")
    }
}

/// Replaces each `:PORT` that no further digit follows.
fn replaced<'a>(text: &str, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = text.to_owned();
    for (from, to) in pairs {
        let mut parts = text.split(from);
        let mut new = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            new += if part.starts_with(|c: char| c.is_ascii_digit()) { from } else { to };
            new += part;
        }
        text = new;
    }
    text
}

#[test]
fn ports_are_replaced_there_and_back() {
    let ports = Ports { pairs: vec![(":8080".into(), ":12345".into())] };
    let text = "http://127.0.0.1:8080/a :80801 8080/1s";
    let real = ports.real(text);
    assert_eq!(real, "http://127.0.0.1:12345/a :80801 8080/1s");
    assert_eq!(ports.shown(&real), text);
}
