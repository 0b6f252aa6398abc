//! The dashboard in a real browser: through a flood, an edit and a mistake.

use crate::{
    common::{Gateway, browser::Browser, http, replace},
    port::free_port,
};
use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

const YAML: &str = "\
workers: 2
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0 }
routes:
  - name: login
    match: { path: /login }
    respond: { status: 200 }
    flow:
      - { name: per-address, limit: 5/1h, key: client_ip }
  - name: other
    match: { path_prefix: / }
    respond: { status: 200 }
";

/// The least contrast of any text in the page with what is behind it, as WCAG computes it. Disabled
/// controls are exempt.
const CONTRAST: &str = r#"(() => {
  const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const back = parse(getComputedStyle(at).backgroundColor);
      if (back.length === 3 || back[3] === 1) return back;
    }
    return [255, 255, 255];
  };
  let least = [99, ""];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.offsetParent || element.closest(":disabled, script")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, walk.currentNode.data];
  }
  return least;
})()"#;

fn flood(gateway: &Gateway) {
    let mut client = http::Client::new(gateway.web());
    for _ in 0..30 {
        client.get("/login");
    }
}

#[test]
fn the_dashboard_shows_a_flood_an_edit_and_a_mistake() {
    let gateway = Gateway::start(YAML);
    let mut browser = Browser::start();
    browser.resize(1280);
    browser.open(&format!("http://{}/dashboard", gateway.address("admin")));
    browser.wait("document.querySelector('#link-text').textContent === 'live'");
    browser.wait("document.querySelectorAll('#rows > li').length === 2");

    flood(&gateway);
    browser.wait("document.querySelector('#rejecting').innerText.includes('login › per-address')");
    browser.wait("/rate[^]*\\d\\/s/.test(document.querySelector('#rejecting').innerText)");
    browser.wait("document.querySelector('#rows > li').innerText.includes('rejects: per-address')");
    browser.wait("document.querySelector('#all-chart canvas').width > 300");

    // A click opens the route, whatever else is on the page, and again by keyboard.
    browser.value("document.querySelector('#rejecting button.link').click()");
    browser.wait("document.querySelectorAll('#rows > li').length === 1");
    browser.wait("document.querySelector('#rows .toggle').ariaExpanded === 'true'");
    browser.value("document.querySelector('#rows .toggle').focus()");
    browser.press("Enter", "\r");
    browser.wait("document.querySelector('#rows .toggle').ariaExpanded === 'false'");
    browser.press("Enter", "\r");
    browser.wait("document.querySelector('#rows .toggle').ariaExpanded === 'true'");
    browser
        .wait("document.querySelector('#rows .detail').innerText.includes('token_bucket, 5/1h')");
    let rules = "document.querySelector('#rows .detail').innerText";
    browser.wait(&format!("{rules}.includes('full: 5 of 5 by the fullest key')"));
    browser.wait(&format!("/fullest keys[^]*fp:[0-9a-f]{{8}}… 5 of 5/.test({rules})"));
    browser.wait(&format!("{rules}.includes('`admin: {{ show_keys: true }}` in the file shows')"));
    browser.wait(&format!("/most rejected in \\d+ min[^]*fp:[0-9a-f]{{8}}… 25/.test({rules})"));

    gateway.edit(&YAML.replace("5/1h", "1000/1h"));
    browser.wait("document.querySelector('#force').innerText.includes('5/1h → 1000/1h')");
    browser.wait("document.querySelector('#force').innerText.includes('2 (config ')");
    browser.wait("document.querySelector('#alert').hidden");

    replace(&gateway.config, &YAML.replace("limit:", "limt:"));
    browser.wait("document.querySelector('#alert').innerText.includes('not in force')");
    let problem = "document.querySelector('#problems').innerText";
    browser.wait(&format!("{problem}.includes('a rule has no key `limt`')"));
    browser.wait(&format!("{problem}.includes('line 9, column 30')"));

    gateway.edit(&YAML.replace("5/1h", "900/1h"));
    browser.wait("document.querySelector('#alert').hidden");
    browser.wait(&format!("{problem}.includes('fixed since')"));
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Sends requests to a path until it is dropped.
struct Traffic(Arc<AtomicBool>);

impl Traffic {
    fn start(gateway: &Gateway, path: &'static str) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&is_over);
        let web = gateway.web();
        thread::spawn(move || {
            while !ended.load(SeqCst) {
                http::get(web, path);
                thread::park_timeout(Duration::from_millis(50));
            }
        });
        Self(is_over)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_service_that_fails_is_seen_before_anything_else() {
    let dead = free_port();
    let yaml = YAML.replace("respond: { status: 200 }\n    flow", "upstream: shop\n    flow").replace(
        "routes:",
        &format!("upstreams: [{{ name: shop, servers: [{{ url: http://127.0.0.1:{dead} }}] }}]\nroutes:"),
    );
    let yaml = yaml.replace("5/1h", "100000/1h");
    let gateway = Gateway::start(&yaml);
    let admin = gateway.address("admin").to_string();
    let mut browser = Browser::start();
    browser.resize(1280);
    browser.open(&format!("http://{admin}/dashboard"));
    browser.wait("document.querySelector('#link-text').textContent === 'live'");
    browser.wait("document.querySelector('#failing-alert').hidden");
    browser.wait("document.querySelector('#failing').innerText === 'No request fails.'");
    browser.wait("document.querySelector('#upstreams').innerText.includes('not asked yet')");
    browser.wait("!document.querySelector('#upstreams').innerText.includes('healthy')");

    let _traffic = Traffic::start(&gateway, "/login");
    browser.wait("/100 % of the admitted requests fail with 5xx/.test(document.querySelector('#failing-alert').innerText)");
    browser.wait("document.querySelector('#failing-alert').innerText.includes('login 100 %')");
    browser.wait("/^[1-9]/.test(document.querySelector('#t-failed').innerText)");
    browser.wait(
        "Math.max(...shown.all.failed) > 0 && Math.max(...shown.series.get('login').failed) > 0",
    );
    browser.wait("/^login → shop\\s*100 %/.test(document.querySelector('#failing li').innerText)");
    browser.wait("document.querySelector('#rows .num.some.failed') !== null");
    browser.wait(
        "/failed, latest 502 \\/login login/.test(document.querySelector('#paths li').innerText)",
    );
    browser.wait("document.querySelector('#upstreams').innerText.includes('✕ failing: 100 % of its latest requests') || document.querySelector('#upstreams').innerText.includes('unreachable')");
    browser.wait("document.title.startsWith('✕ 100 % failed')");
    // A click opens the route.
    browser.value("document.querySelector('#failing button.link').click()");
    browser.wait("document.querySelectorAll('#rows > li').length === 1");
    browser.wait("document.querySelector('#rows .toggle').ariaExpanded === 'true'");
    browser.wait("!document.querySelector('#rows .detail').hidden");

    let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["top", "--once", "--admin", &admin])
        .output()
        .expect("it runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    for part in [
        "  ✕ failed ",
        "✕ 100 % of the admitted requests fail with 5xx",
        ": login 100 %",
        "failed/s",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_dashboard_can_be_read_on_a_phone_and_without_seeing_colours_well() {
    let gateway = Gateway::start(YAML);
    let mut browser = Browser::start();
    browser.resize(360);
    browser.open(&format!("http://{}/dashboard", gateway.address("admin")));
    flood(&gateway);
    browser.wait("document.querySelector('#rows > li').innerText.includes('rejects: per-address')");
    browser.value("document.querySelectorAll('#rows .toggle').forEach((toggle) => toggle.click())");
    browser.wait("document.querySelectorAll('.detail canvas').length === 4");
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
    for theme in ["light", "dark"] {
        browser.wait(&format!(
            "document.documentElement.dataset.theme === '{theme}' || document.querySelector('#theme').click()"
        ));
        let least = browser.value(CONTRAST);
        assert!(least[0].as_f64().is_some_and(|ratio| ratio >= 4.5), "{theme}: {least}");
    }
    let unnamed = "[...document.querySelectorAll('button, input, select, textarea, [role=img], [role=meter]')]\
        .filter((one) => !one.textContent.trim() && !one.ariaLabel && !(one.labels && one.labels.length)).length";
    assert_eq!(browser.value(unnamed), 0);
    let elsewhere = "performance.getEntriesByType('resource').filter((one) => !one.name.startsWith(location.origin)).length";
    assert_eq!(browser.value(elsewhere), 0);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_dashboard_shows_a_budget_once_with_the_routes_that_use_it() {
    let gateway = Gateway::start(
        "\
workers: 1
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0 }
budgets: [{ name: site, limit: 5/1h, burst: 5, key: client_ip }]
flow: [{ budget: site }]
routes:
  - { name: login, match: { path: /login }, respond: { status: 200 } }
  - { name: other, match: { path: /other }, respond: { status: 200 } }
",
    );
    let mut browser = Browser::start();
    browser.resize(1280);
    browser.open(&format!("http://{}/dashboard", gateway.address("admin")));
    browser.wait("document.querySelectorAll('#rows > li').length === 2");
    browser.wait("!document.querySelector('#budgets').hidden");

    flood(&gateway);
    let card = "document.querySelector('#budget-rows').innerText";
    browser.wait(&format!("{card}.includes('budget site')"));
    browser.wait(&format!("{card}.includes('Used by login, other, (no route)')"));
    browser.wait(&format!("{card}.includes('full: 5 of 5 by the fullest key')"));
    browser.wait("document.querySelector('#rejecting').innerText.includes('budget site › site')");

    // The routes lead to their rows, which name the budget.
    browser.value("document.querySelector('#budget-rows button.link').click()");
    browser.wait("document.querySelector('#rows .toggle').ariaExpanded === 'true'");
    browser.wait(
        "document.querySelector('#rows .detail').innerText.includes('also meet: budget site')",
    );
}
