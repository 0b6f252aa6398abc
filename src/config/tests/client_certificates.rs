//! Client certificates in matches and keys.

use super::{FRAME, messages};
use crate::config::Text;

fn with(matching: &str, rule: &str) -> String {
    format!(
        "{FRAME}routes: [{{ name: a, match: {{ path: /a{matching} }}, upstream: app{rule} }}]\nend: true\n"
    )
}

#[test]
fn a_certificate_is_needed_only_where_a_listener_asks_for_one() {
    let help = "write `client_ca: FILE` in `tls` of a listener";
    let matching = format!("`client_cert` where no listener asks for certificates | {help}");
    for condition in ["true", "{ subject: CN=ann }"] {
        messages(&with(&format!(", client_cert: {condition}"), ""), &[&matching]);
    }
    let keyed = format!(
        "the rule `r` counts by `client_cert`, and no listener asks for certificates | {help}"
    );
    messages(&with("", ", flow: [{ name: r, limit: 1/1s, key: client_cert }]"), &[&keyed]);
}

/// `replay` and `test` read no certificates.
#[test]
fn the_rules_alone_know_that_a_listener_asks_for_certificates() {
    let text = |terms: &str| {
        format!(
            "listeners:
  - name: web
    listen: 127.0.0.1:0
    tls: {{ certificates: [{{ cert: none.pem, key: none.key }}]{terms} }}
routes:
  - name: a
    match: {{ path: /a, client_cert: true }}
    respond: 200
    flow: [{{ name: r, limit: 1/1s, key: client_cert }}]
"
        )
    };
    let rules = |terms: &str| Text::new("gateway.yaml".as_ref(), &text(terms)).rules();
    rules(", client_ca: none.pem").expect("right");
    let problems = rules("").unwrap_err().to_string();
    assert_eq!(problems.matches("no listener asks for certificates").count(), 2, "{problems}");
}

#[test]
fn a_condition_on_a_certificate_says_what_must_match() {
    let unasked = "`client_cert` where no listener asks for certificates | write `client_ca: FILE` in `tls` of a listener";
    for (condition, expected) in [
        (
            "{}",
            &[
                unasked,
                "`client_cert` needs a condition | write `client_cert: true`, or `client_cert: { subject: CN=ann }`",
            ][..],
        ),
        (
            "false",
            &[
                "a certificate that must be absent cannot be matched | write `true`, and a more general route for clients without a certificate",
            ],
        ),
        (
            "{ fingerprint: abc }",
            &[
                unasked,
                "`abc` is not the SHA-256 of a certificate | write the 64 hexadecimal digits that `openssl x509 -noout -fingerprint -sha256` prints",
            ],
        ),
    ] {
        messages(&with(&format!(", client_cert: {condition}"), ""), expected);
    }
}
