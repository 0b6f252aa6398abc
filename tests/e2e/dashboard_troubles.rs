//! What the dashboard shows of servers, breakers, queues and a store that fail.

use crate::{
    common::{Gateway, browser::Browser, http, replace, upstream::Script, upstream::ok},
    port::free_port,
};
use serde_json::json;
use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::Duration,
};

/// A gateway with much that fails, and what it needs.
struct Troubled {
    gateway: Gateway,
    yaml: String,
    sent: AtomicUsize,
    _upstreams: [Script; 2],
}

fn start() -> Troubled {
    let count = AtomicUsize::new(0);
    let well = Script::answering(move |_| {
        // Some are slower.
        let number = count.fetch_add(1, SeqCst);
        thread::park_timeout(Duration::from_millis([1, 2, 3, 24][number % 4]));
        ok("hello")
    });
    let ill = Script::answering(|_| {
        b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_vec()
    });
    let dead = free_port();
    let store = free_port();
    let yaml = format!(
        "\
workers: 2
listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
admin: {{ listen: 127.0.0.1:0, edit: true, show_keys: true }}
store: {{ redis: redis://127.0.0.1:{store} }}
upstreams:
  - name: shop
    servers: [{{ url: http://{} }}, {{ url: http://127.0.0.1:{dead} }}]
    health: {{ path: /health, interval: 1s }}
  - {{ name: payments, servers: [{{ url: http://{} }}] }}
routes:
  - name: login
    match: {{ path_prefix: /login }}
    upstream: shop
    flow:
      - {{ name: per-user, limit: 5/1h, key: \"header:x-user\" }}
      - {{ name: everyone, limit: 400/1s }}
  - name: payments
    match: {{ path_prefix: /payments }}
    upstream: payments
    breaker: {{ errors: 3, open_for: 1h }}
  - name: reports
    match: {{ path_prefix: /reports }}
    upstream: shop
    timeouts: {{ request: 4h }}
    pacing: {{ rate: 1/20m, max_wait: 1h }}
  - name: catalog
    match: {{ path_prefix: /catalog }}
    upstream: shop
    pacing: {{ rate: 40/1s, max_wait: 1s }}
  - name: trial
    match: {{ path_prefix: /trial }}
    upstream: shop
    flow: [{{ name: maybe, limit: 1/1s, dry_run: true }}]
  - name: orders
    match: {{ path_prefix: /orders }}
    upstream: shop
    flow: [{{ name: shared, limit: 1000/1s, scope: cluster }}]
",
        well.address, ill.address
    );
    let gateway = Gateway::start(&yaml);
    Troubled { gateway, yaml, sent: AtomicUsize::new(0), _upstreams: [well, ill] }
}

impl Troubled {
    /// Sends `count` requests to a route, by one of eight users.
    fn send(&self, path: &str, count: usize) {
        let mut client = http::Client::new(self.gateway.web());
        for _ in 0..count {
            let number = self.sent.fetch_add(1, SeqCst);
            let user = ["ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal"][number % 8];
            client.request("GET", path, &[("x-user", user)]);
        }
    }

    /// Makes the breaker open and leaves requests in the queue, for as long as the result lives.
    fn break_down(&self) -> Vec<http::Client> {
        self.send("/payments", 9);
        let wait = |_| {
            let mut client = http::Client::new(self.gateway.web());
            client.send(http::head("GET", "/reports", &[]));
            client
        };
        (0..3).map(wait).collect()
    }
}

/// The texts in the colour of what is bad that have neither a sign nor a word, also not before them.
const WITHOUT_SIGN: &str = r#"(() => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = "var(--rejected)";
  const bad = getComputedStyle(probe).color;
  probe.remove();
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.offsetParent || getComputedStyle(element).color !== bad) continue;
    seen += 1;
    const near = [element, element.parentElement];
    const before = near.map((one) => getComputedStyle(one, "::before").content).join();
    if (!/[a-z]{3}|✕/.test(element.textContent + before)) found.push(element.outerHTML);
  }
  return [seen, found];
})()"#;

#[test]
fn what_fails_is_shown_also_to_users_who_see_no_colours_and_what_has_passed_too() {
    let world = start();
    let _waiting = world.break_down();
    world.send("/login", 60);
    // The flood is over before the page is opened.
    thread::park_timeout(Duration::from_secs(4));
    let mut browser = Browser::start();
    browser.call("Emulation.setEmulatedVisionDeficiency", &json!({ "type": "achromatopsia" }));
    browser.resize(1280);
    browser.open(&format!("http://{}/dashboard", world.gateway.address("admin")));
    browser.wait("document.querySelector('#link-text').textContent === 'live'");
    let now = "shown.all.rejected[shown.all.rejected.length - 1]";
    browser.wait(&format!("shown.all.at.length === 300 && {now} === 0"));
    browser.wait("Math.max(...shown.all.rejected.slice(0, -3)) > 0");
    browser.wait("shown.series.get('login').rejected.reduce((a, b) => a + b) === 60 - 40");
    browser
        .wait("/at most [1-9]\\d* rejected/.test(document.querySelector('#all-chart').ariaLabel)");

    let row = |name: &str| {
        format!(
            "[...document.querySelectorAll('#rows > li')].find((row) => row.innerText.includes('{name}')).innerText"
        )
    };
    browser.wait(&format!("{}.includes('breaker open')", row("payments")));
    browser.wait(&format!("{}.includes('(2 wait)')", row("reports")));
    browser.wait("document.querySelector('#t-waiting').textContent === '2'");
    let upstreams = "document.querySelector('#upstreams').innerText";
    browser.wait(&format!("{upstreams}.includes('✕ 1 server out of order')"));
    browser.wait(&format!("/✕ (unhealthy|ejected)/.test({upstreams})"));
    browser.wait(&format!("{upstreams}.includes('✓ healthy')"));
    browser.wait("document.querySelector('#store').innerText.includes('✕ not reached')");

    replace(&world.gateway.config, &world.yaml.replace("limit: 5/1h", "limt: 5/1h"));
    browser
        .wait("document.querySelector('#alert').innerText.includes('✕ The file is not in force')");
    browser.wait("document.querySelector('#problems').innerText.includes('✕ not fixed yet')");
    world.send("/login", 60);
    browser.wait("document.querySelector('#rejecting .chip.bad')?.textContent === 'rate'");
    browser.wait(&format!("{}.includes('rejects: per-user')", row("login")));
    // Each of these is one that colour alone would show.
    let found = browser.value(WITHOUT_SIGN);
    assert!(found[0].as_u64().is_some_and(|seen| seen >= 6), "{found}");
    assert_eq!(found[1], json!([]), "bad, but only by its colour");
    let sign = "getComputedStyle(document.querySelector('#rows .num.some'), '::before').content";
    browser.wait(&format!("{sign}.includes('✕')"));
    assert_eq!(browser.complaints(), [""; 0]);
}
