//! The dashboard in a real browser: through a flood, an edit and a mistake.

use crate::common::{Gateway, browser::Browser, http, replace};

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

    // By keyboard: the rules of the route.
    browser.value("document.querySelector('#rows .toggle').focus()");
    browser.press("Enter", "\r");
    browser.wait("document.querySelector('#rows .toggle').ariaExpanded === 'true'");
    browser
        .wait("document.querySelector('#rows .detail').innerText.includes('token_bucket, 5/1h')");
    let rules = "document.querySelector('#rows .detail').innerText";
    browser.wait(&format!("{rules}.includes('full: 5 of 5 by the fullest key')"));
    browser.wait(&format!("/fullest keys[^]*fp:[0-9a-f]{{8}}… 5 of 5/.test({rules})"));
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
