//! Certificates that end, as operators see them.

use crate::common::{Gateway, http, metrics};
use rcgen::{CertificateParams, KeyPair};
use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Writes a certificate that ends in `left`. Returns when, in seconds since 1970.
fn write(folder: &Path, name: &str, left: Duration) -> u64 {
    let now = SystemTime::now();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.not_before = (now - Duration::from_hours(1)).into();
    params.not_after = (now + left).into();
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("signed");
    fs::write(folder.join(format!("{name}.pem")), certificate.pem()).expect("written");
    fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("written");
    (now + left).duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

const DAY: Duration = Duration::from_hours(24);

fn text(limit: u32) -> String {
    format!(
        "workers: 1
listeners:
  - {{ name: web, listen: 127.0.0.1:0 }}
  - {{ name: tls, listen: 127.0.0.1:0, tls: {{ certificates: [{{ cert: site.pem, key: site.key }}] }} }}
admin: {{ listen: 127.0.0.1:0 }}
upstreams:
  - name: shop
    tls: {{ cert: client.pem, key: client.key }}
    servers: [{{ url: https://127.0.0.1:9 }}]
routes:
  - name: all
    match: {{ path_prefix: / }}
    upstream: shop
    flow: [{{ name: r, limit: {limit}/1h }}]
"
    )
}

fn run(gateway: &Gateway, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(arguments)
        .current_dir(gateway.dir.path())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

#[test]
fn a_certificate_that_ends_is_seen_everywhere_and_logged_once_at_each_stage() {
    let dir = tempfile::tempdir().expect("a folder");
    let end = write(dir.path(), "site", DAY * 2);
    // Nine days and 23 hours.
    let later = write(dir.path(), "client", Duration::from_hours(239));
    let gateway = Gateway::start_in(dir, &text(5), &[]);
    gateway.wait_log("the certificate site.pem (listener tls) is valid until ");
    let line = gateway.wait_log("the certificate client.pem (upstream shop) is valid until ");
    assert!(line.contains("WARN") && line.contains("for 9 more days: renew it"), "{line}");

    let ends = metrics(&gateway, "flowgate_certificate_not_after_timestamp_seconds");
    let of = |used_by: &str| {
        let label = format!("used_by=\"{used_by}\"");
        ends.iter().find(|(labels, _)| labels.contains(&label)).map(|(_, end)| *end)
    };
    #[expect(clippy::cast_precision_loss, reason = "a time in this century")]
    let [end_seconds, later_seconds] = [end, later].map(|time| time as f64);
    assert_eq!((of("listener tls"), of("upstream shop")), (Some(end_seconds), Some(later_seconds)));
    let page = http::ask(gateway.address("admin"), "/readyz?verbose").text();
    assert!(page.contains("certificate client.pem (upstream shop): valid until "), "{page}");
    assert!(page.contains("upstream shop: 1 not asked yet"), "{page}");
    let checked = run(&gateway, &["check"]);
    assert!(
        checked.contains("certificate ") && checked.contains("client.pem  valid until "),
        "{checked}"
    );
    let checked = run(&gateway, &["check", "--output", "json"]);
    assert!(checked.contains(&format!("\"not_after\": {later}")), "{checked}");
    let admin = gateway.address("admin").to_string();
    let top = || run(&gateway, &["top", "--once", "--admin", &admin]);
    let shown = top();
    assert!(
        shown.contains("(upstream shop): valid until ") && shown.contains("9 days left"),
        "{shown}"
    );

    // Another one is in force, and ends. Slow machines only see it end at once.
    write(gateway.dir.path(), "site", Duration::from_secs(2));
    let line = gateway
        .wait_log("the certificate site.pem (listener tls) has expired: it was valid until ");
    assert!(line.contains("WARN") && line.contains("clients reject it"), "{line}");
    assert!(top().contains("EXPIRED"), "{}", top());
    let page = http::ask(gateway.address("admin"), "/readyz?verbose").text();
    assert!(
        page.contains("certificate site.pem (listener tls): expired, was valid until "),
        "{page}"
    );

    // A reload says nothing of it again.
    gateway.edit(&text(6));
    gateway.edit(&text(7));
    let log = gateway.log();
    for part in ["client.pem (upstream shop) is valid", "has expired"] {
        assert_eq!(log.matches(part).count(), 1, "{part}: {log}");
    }
    // One line for each of the certificates that the file has had.
    assert!(log.matches("site.pem (listener tls) is valid").count() <= 2, "{log}");

    // It is renewed, and the notice is gone.
    let seen = gateway.log_len();
    write(gateway.dir.path(), "site", DAY * 90);
    gateway.wait_log_after(seen, "reloaded");
    assert!(!http::ask(gateway.address("admin"), "/readyz?verbose").text().contains("expired"));
}
