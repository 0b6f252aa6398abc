//! The client that commands use, against the real listener.

use super::{CONFIG, DEADLINE, Served};
use flowgate::admin_client::{AdminClient, AdminOptions, ClientError};
use http::Method;
use serde_json::Value;
use std::{fs, path::Path};
use tokio::{net::TcpListener, time::timeout};

fn options(url: &str, folder: &Path, token: &str, ca: &str) -> AdminOptions {
    let file = |name: &str| (!name.is_empty()).then(|| folder.join(name));
    let admin = Some(url.parse().unwrap_or_else(|error| panic!("{url}: {error}")));
    AdminOptions { admin, token_file: file(token), ca: file(ca), ..AdminOptions::default() }
}

async fn routes(folder: &Path, options: &AdminOptions) -> Result<Value, ClientError> {
    let client = AdminClient::find(&folder.join("gateway.yaml"), options)?;
    timeout(DEADLINE, client.ask(Method::GET, "/routes", "")).await.unwrap()
}

/// A folder with a token and a certificate, and the listener that has them.
async fn guarded() -> (Served, tempfile::TempDir) {
    let files = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["gateway.internal".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["gateway.internal".to_owned()]).unwrap();
    for folder in [&files, &folder] {
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("token", "0123456789abcdef\n");
        write("wrong", "0123456789abcdee\n");
        write("empty", "\n");
        write("cert", &own.cert.pem());
        write("key", &own.signing_key.serialize_pem());
        write("other", &other.cert.pem());
    }
    let admin =
        "admin: { listen: '127.0.0.1:0', token_file: token, tls: { cert: cert, key: key } }";
    let served = Served::within(folder, &format!("{admin}{CONFIG}")).await;
    // The configuration as a command would find it.
    let at = admin.replace("127.0.0.1:0", &served.address.to_string());
    fs::write(files.path().join("gateway.yaml"), format!("{at}{CONFIG}")).unwrap();
    (served, files)
}

#[tokio::test]
async fn a_command_finds_listener_token_and_certificate_in_the_file() {
    let (served, files) = guarded().await;
    let shown = routes(files.path(), &AdminOptions::default()).await.unwrap();
    assert_eq!(shown["routes"][0]["name"], "all", "{shown}");
    served.end().await;
}

#[tokio::test]
async fn a_command_that_cannot_ask_says_what_to_do() {
    let (served, files) = guarded().await;
    let folder = files.path();
    let url = format!("https://{}", served.address);
    let cases = [
        (url.as_str(), "token", "cert", ""),
        (&url, "", "cert", "wants a token: name its file with --token-file"),
        (&url, "wrong", "cert", "the token is not the one"),
        (&url, "empty", "cert", "it is empty"),
        (&url, "none", "cert", "cannot use "),
        (&url, "token", "other", "name the authority of its certificate with --ca FILE"),
        (&url, "token", "token", "no certificate is there"),
        (&url[8..], "token", "", "cannot read the answer"),
    ];
    for (url, token, ca, expected) in cases {
        let asked = routes(folder, &options(url, folder, token, ca)).await;
        match asked {
            Ok(_) => assert_eq!(expected, "", "{url} {token} {ca}"),
            Err(error) => {
                let said = error.to_string();
                assert!(!expected.is_empty() && said.contains(expected), "{said}");
                assert!(!said.contains("0123456789"), "{said}");
            }
        }
    }
    served.end().await;
}

#[tokio::test]
async fn a_variable_that_only_the_gateway_has_is_named() {
    let (served, files) = guarded().await;
    let admin = format!(
        "admin: {{ listen: '{}', token: \"${{NOT_SET_BY_TESTS}}\", tls: {{ cert: cert, key: key }} }}",
        served.address
    );
    fs::write(files.path().join("gateway.yaml"), format!("{admin}{CONFIG}")).unwrap();
    let error = routes(files.path(), &AdminOptions::default()).await.unwrap_err().to_string();
    let expected = "wants a token (the variable `NOT_SET_BY_TESTS` is not set): name its file";
    assert!(error.contains(expected), "{error}");
    served.end().await;
}

#[tokio::test]
async fn a_listener_that_is_not_there_or_lacks_the_page_is_named() {
    let served = Served::start().await;
    let config = Path::new("none.yaml");
    let address = served.address.to_string();
    let client = AdminClient::find(config, &options(&address, config, "", "")).unwrap();
    let missing = client.text(Method::GET, "/none?of=it", "").await.unwrap_err().to_string();
    assert!(missing.contains("has no page /none:"), "{missing}");
    let rejected = client.text(Method::PUT, "/metrics", "").await.unwrap_err();
    assert!(
        matches!(&rejected, ClientError::Rejected { status, text } if status.as_u16() == 405
            && text == "this page takes another method"),
        "{rejected}"
    );
    served.end().await;
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = unused.local_addr().unwrap().to_string();
    drop(unused);
    let client = AdminClient::find(config, &options(&address, config, "", "")).unwrap();
    let said = client.text(Method::GET, "/routes", "").await.unwrap_err().to_string();
    assert!(said.contains("is the gateway running"), "{said}");
}

#[tokio::test]
async fn a_file_without_the_listener_says_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    fs::write(&path, CONFIG).unwrap();
    let said = AdminClient::find(&path, &AdminOptions::default()).unwrap_err().to_string();
    assert!(said.contains("write `admin: { listen: 127.0.0.1:9901 }`"), "{said}");
}

#[tokio::test]
async fn events_are_followed() {
    let (served, files) = guarded().await;
    let config = files.path().join("gateway.yaml");
    let client = AdminClient::find(&config, &AdminOptions::default()).unwrap();
    let mut events = timeout(DEADLINE, client.follow("/live")).await.unwrap().unwrap();
    let mut names = Vec::new();
    while !names.iter().any(|name| name == "sample") {
        let event = timeout(DEADLINE, events.next()).await.unwrap().unwrap().expect("it goes on");
        serde_json::from_str::<serde::de::IgnoredAny>(&event.data).unwrap();
        names.push(event.name);
    }
    let missing = client.follow("/none").await.unwrap_err();
    assert!(matches!(missing, ClientError::NoPage { .. }), "{missing}");
    drop(events);
    served.end().await;
}
