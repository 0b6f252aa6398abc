//! The admin listener of a file, found by commands while the file has errors.

use crate::config;
use std::{fs, path::Path};

const ADMIN: &str = "admin: { listen: 127.0.0.1:9911, token_file: token }\n";

const REST: &str = "listeners: [{ name: web, listen: 127.0.0.1:8080 }]
upstreams:
  - name: app
    servers: [{ url: http://127.0.0.1:9000 }]
routes:
  - name: all
    match: { path_prefix: / }
    upstream: app
";

/// Returns the port that commands find, and 0 if there is no admin listener.
fn found(folder: &Path, bytes: &[u8]) -> Option<u16> {
    let path = folder.join("gateway.yaml");
    fs::write(&path, bytes).unwrap();
    let read = config::read_admin(&path).ok()?;
    let Some(admin) = read else { return Some(0) };
    if let Some(file) = &admin.token_file {
        assert_eq!(*file, folder.join("token"));
    }
    Some(admin.listen.port())
}

#[test]
fn admin_is_found_in_a_file_that_is_broken_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let block = "admin:\n  # for operators\n  listen: 127.0.0.1:9911\n  token_file: token\n";
    for admin in [ADMIN, block, "\"admin\": {\n  'listen': \"127.0.0.1:9911\"\n}\n"] {
        for broken in [
            "routes: [{ name: a, match: { path: /a }\n",
            "routes:\n\t- name: a\n",
            "routes:\n  - name: \"a\n",
            "routes: ]\n",
            "routes:\n  - name a\n    b\n   - c\n",
            "a: *none\n",
            "<<<<<<< HEAD\n",
            "---\nb: 1\n",
            "routes: { name: a }}\n",
            "x: @y\n",
            "limits: 5\nroutes: 7\n",
        ] {
            for text in [format!("{admin}{REST}{broken}"), format!("{broken}{admin}{REST}")] {
                // A second document is not the file's.
                assert_eq!(found(folder.path(), text.as_bytes()), Some(9911), "{text}");
                let windows = text.replace('\n', "\r\n");
                assert_eq!(found(folder.path(), windows.as_bytes()), Some(9911), "{windows}");
            }
        }
        let mut bytes = format!("{admin}{REST}").into_bytes();
        bytes.extend(b"# \xff\xfe\n");
        assert_eq!(found(folder.path(), &bytes), Some(9911));
    }
}

#[test]
fn admin_is_found_in_a_file_that_ends_anywhere_behind_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let block = "admin:\n  listen: 127.0.0.1:9911\n  token_file: token\n";
    let json = "{\n  \"listeners\": [{ \"name\": \"admin\", \"address\": \"127.0.0.1:1\" }],\n  \
                \"admin\": { \"listen\": \"127.0.0.1:9911\", \"token_file\": \"token\" },\n  \
                \"routes\": [{ \"name\": \"a\" }]\n}\n"
        .to_owned();
    for text in [format!("{ADMIN}{REST}"), format!("{REST}{block}"), json] {
        let value = text.find("9911").unwrap() + 4;
        let end = value + text[value..].find([',', '\n']).unwrap() + 1;
        for cut in end..=text.len() {
            let part = &text[..cut];
            // The token's file may be cut off, but no part of its name is taken for it.
            let path = folder.path().join("gateway.yaml");
            fs::write(&path, part).unwrap();
            let admin = config::read_admin(&path);
            let Ok(Some(admin)) = admin else { panic!("{part}: {admin:?}") };
            assert_eq!(admin.listen.port(), 9911, "{part}");
        }
        // No part of an address within braces is taken for it.
        let before = if text.contains("listen: 127.0.0.1:9911\n") { value - 16 } else { value };
        for cut in 0..before {
            let read = found(folder.path(), &text.as_bytes()[..cut]);
            // A beginning may be a whole file, in which the key is missing.
            let is_whole = config::read_rules(&folder.path().join("gateway.yaml")).is_ok();
            let is_unknown = matches!(read, None | Some(9901)) || (read == Some(0) && is_whole);
            assert!(is_unknown, "{}: {read:?}", &text[..cut]);
        }
    }
}

#[test]
fn a_tab_within_admin_does_not_hide_it() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("admin:\n\tlisten: 127.0.0.1:9911\n\ttoken_file: token\n{REST}");
    assert_eq!(found(folder.path(), text.as_bytes()), Some(9911));
    let text = format!("admin:\n  listen: 127.0.0.1:9911\n\ttoken_file: token\n{REST}");
    assert_eq!(found(folder.path(), text.as_bytes()), Some(9911));
    let text = "  admin:\n    listen: 127.0.0.1:9911\n  routes: [\n";
    assert_eq!(found(folder.path(), text.as_bytes()), Some(9911));
}

#[test]
fn only_the_key_of_the_file_counts() {
    let folder = tempfile::tempdir().unwrap();
    let none = |text: &str| assert_eq!(found(folder.path(), text.as_bytes()), None, "{text}");
    none(&format!("{REST}x: [\n"));
    none(&format!("{REST}x: [\n  admin: {{ listen: 127.0.0.1:9911 }}\n"));
    none(&format!("# {ADMIN}{REST}x: [\n"));
    none(&format!("administrators: 1\n{REST}x: [\n"));
    none(&format!("admin: {{ listen: 127.0.0.1:99999 }}\n{REST}x: [\n"));
    none(&format!("admin: {{ listen: 127.0.0.1:\n{REST}"));
    none("");
    // It is not missing where the file ends early.
    none("listeners: [{ name: web, listen: 127.0.0.1:8080 }]\n");
    // A whole file without it has no such listener.
    assert_eq!(found(folder.path(), REST.as_bytes()), Some(0));
    // Without an address it is the default.
    let text = format!("admin: {{ token_file: token }}\n{REST}x: [\n");
    assert_eq!(found(folder.path(), text.as_bytes()), Some(9901));
}

#[test]
fn the_search_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("admin: {{ listen: 127.0.0.1:9911,\n{}", "  x: [\n".repeat(500_000));
    assert_eq!(found(folder.path(), long.as_bytes()), None);
    let many = "admin: {\n".repeat(400_000);
    assert_eq!(found(folder.path(), many.as_bytes()), None);
}
