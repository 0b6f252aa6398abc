//! Every file that the repository offers to readers must load, without a warning.

use crate::{
    config::{Diagnostics, Plan, Severity, describe, read},
    flow::Instant,
};
use std::{fs, path::Path};

#[test]
fn the_default_file_loads() {
    let plan = load("gateway.yaml");
    assert_eq!(plan.routes.len(), 6);
    assert_eq!(plan.source().files[0].end, Some(true));
}

#[test]
fn the_default_file_says_no_default_that_is_not_one() {
    let plan = load("gateway.yaml");
    let bare = super::plan(&format!(
        "{}routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\nadmin: {{}}\n",
        super::FRAME
    ));
    assert_eq!(plan.settings, bare.settings);
}

#[test]
fn every_example_loads() {
    let entries = fs::read_dir(root().join("examples")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|kind| kind == "yaml"))
        // Tests of rules, which `tests/scenario.rs` runs.
        .filter(|name| name != "scenario.yaml")
        .collect();
    names.sort();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let plan = load(&format!("examples/{name}"));
        assert!(!describe(&plan).is_empty());
    }
    assert!(load("examples/cluster/gateway.yaml").settings.store.is_some());
    load("examples/kubernetes/gateway.yaml");
}

/// A block that begins a file has its listeners and routes. Two need files beside them.
#[test]
fn every_whole_file_in_the_docs_can_be_read() {
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut read = 0;
    for page in pages.filter(|page| page.extension().is_some_and(|kind| kind == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```"));
        for (block, _) in blocks {
            let is_whole = block.contains("listeners:") && block.contains("routes:");
            if is_whole && !block.contains("${") && !block.contains("file: accounts.csv") {
                if let Err(problems) = super::parsed(block)
                    && !problems.list().all(|problem| problem.message.starts_with("cannot read"))
                {
                    panic!("{}: {problems}", page.display());
                }
                read += 1;
            }
        }
    }
    assert!(read >= 10, "{read}");
}

/// Loads a copy of a file of the repository, beside certificates made for it and a key of tokens.
#[track_caller]
fn load(name: &str) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::copy(root().join(name), &path).unwrap();
    // The public key of RFC 8037, appendix A.2.
    let issuer = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    fs::write(path.with_file_name("issuer.json"), issuer).unwrap();
    let missing = read(&path).err();
    for (cert, key) in missing.iter().flat_map(Diagnostics::certificate_files) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::create_dir_all(cert.parent().unwrap()).unwrap();
        fs::write(cert, made.cert.pem()).unwrap();
        fs::write(key, made.signing_key.serialize_pem()).unwrap();
    }
    let plan = read(&path).unwrap_or_else(|problems| panic!("{problems}"));
    let remarks = plan.remarks_at(Instant::EPOCH);
    let notes: Vec<_> =
        remarks.list().filter(|diagnostic| diagnostic.severity == Severity::Note).collect();
    assert!(plan.warnings.is_empty() && notes.is_empty(), "{name}: {remarks}");
    plan
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
