//! `docs/metrics.md` against the page.

use super::{CONFIG, Fixture, metrics, openmetrics};
use crate::{
    acme,
    admin::exposition::Format,
    cluster::{ROUND_TRIP_BOUNDS, StoreReading},
    config::Retired,
    meter::{AuthOutcome, CopyOutcome},
};
use core::time::Duration;
use rcgen::{CertificateParams, KeyPair};
use std::{collections::BTreeMap, fs, sync::Arc};

/// Families by name: the type, and the labels as far as they show.
type Families = BTreeMap<String, (String, Vec<String>)>;

#[tokio::test(start_paused = true)]
async fn every_metric_is_in_the_list_and_the_list_has_no_other() {
    let fixture = Fixture::new();
    fixture.serve_a_little().await;
    fixture.show_a_certificate_and_budgets();
    let snapshot = fixture.snapshot();
    let route = snapshot.routes.first().expect("a route");
    route.meter.record_auth(AuthOutcome::Allowed, Duration::from_millis(1));
    route.meter.count_copy(CopyOutcome::Ok);
    let served = served(&fixture);
    let listed = listed();
    let names = |families: &Families| families.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&served), names(&listed));
    assert_eq!(served, listed);
}

impl Fixture {
    /// Has a listener with TLS.
    fn show_a_certificate_and_budgets(&self) {
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let write = |name: &str, text: String| fs::write(self.directory.path().join(name), text);
        write("c.pem", certificate.pem()).unwrap();
        write("c.key", key.serialize_pem()).unwrap();
        let country = include_bytes!("../../../tests/geo/country.mmdb");
        fs::write(self.directory.path().join("country.mmdb"), country).unwrap();
        let tls = "tls: { certificates: [{ cert: c.pem, key: c.key }] }";
        let text = CONFIG.replacen("127.0.0.1:0 }", &format!("127.0.0.1:0, {tls} }}"), 1);
        let budgets = "budgets:
  - { name: keyed, limit: 9/1s, key: client_ip, dry_run: true, reject_for: 1m, cost: { settle: { bytes: both } } }
  - { name: places, concurrency: auto }
flow: [{ budget: keyed }, { budget: places }]
geo: { country: country.mmdb }
";
        let settles = "reject_for: 1m, cost: { settle: { bytes: both } }";
        let text =
            text.replacen("limit: 3/1h }", &format!("limit: 3/1h, {settles} }}"), 1) + budgets;
        let plan = self.read(&text).unwrap_or_else(|problems| panic!("{problems}"));
        let state = &self.router.admin.state;
        state.live.apply(plan, state.clock.now(), &mut Retired::default());
    }
}

/// The list.
fn listed() -> Families {
    let words = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let rows = include_str!("../../../docs/metrics.md").lines();
    rows.filter_map(|row| {
        let [name, kind, labels, _] = row.split(" | ").collect::<Vec<_>>()[..] else {
            return None;
        };
        Some((words(name).pop()?, (kind.to_owned(), words(labels))))
    })
    .collect()
}

/// The page, with a store.
fn served(fixture: &Fixture) -> Families {
    let state = &fixture.router.admin.state;
    let store = StoreReading {
        waiting_settlements: 0,
        settlements: ["applied", "full", "late", "rejected"].map(|end| (end, 0)).to_vec(),
        is_up: true,
        gateways: 1,
        divisor: 1,
        errors: vec![("timeout", 1)],
        round_trips: vec![0; ROUND_TRIP_BOUNDS.len() + 1],
        waited: Duration::ZERO,
        is_syncing: true,
        synced_states: [1; 2],
        cached_rejections: 1,
        failure: None,
    };
    let counters = state.counters.clone();
    let now = state.clock.now();
    let page = metrics::Metrics::read(fixture.snapshot(), counters, Some(store), now, now);
    let page = page.with_acme(&Arc::new(acme::Status::with_one("a.example")));
    let page = page.write(Format::OpenMetrics).unwrap();
    let samples = openmetrics::read(&page);
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    families
        .map(|(family, kind)| {
            let name = match kind {
                "counter" => format!("{family}_total"),
                "info" => format!("{family}_info"),
                _ => family.to_owned(),
            };
            let sample = if kind == "histogram" { format!("{name}_sum") } else { name.clone() };
            let has_name = |known: &&String| known.split('{').next() == Some(&sample);
            let labels = samples.keys().find(has_name).expect("it has a sample");
            let labels = labels.split(['{', ',']).filter_map(|pair| pair.split_once('='));
            (name, (kind.to_owned(), labels.map(|(label, _)| label.to_owned()).collect()))
        })
        .collect()
}
