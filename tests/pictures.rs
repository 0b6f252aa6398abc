//! The pictures in docs/pictures are what `replay` draws.
//!
//! `UPDATE_PICTURES=1 cargo test --test pictures` draws them again.

use flowgate::{
    config,
    replay::{self, Options, Output, TrafficOptions},
};
use std::{collections::HashMap, env, fs, path::Path};

#[test]
fn each_picture_is_drawn_by_replay() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let file = folder.join("algorithms.yaml");
    let plan = config::read_rules(&file).expect("it is well-formed");
    let engine = replay::Engine::new(plan, flowgate::flow::Instant::EPOCH, None);
    let drawn = tempfile::tempdir().expect("a temporary folder");
    let mut others = HashMap::new();
    for route in &engine.snapshot().routes {
        let name = format!("{}.svg", route.name);
        let fresh = drawn.path().join(&name);
        let options = Options {
            traffic: TrafficOptions {
                inputs: vec![folder.join("minute.jsonl.gz")],
                ..TrafficOptions::default()
            },
            route: Some(route.name.to_string()),
            output: Output::Report,
            against: None,
            html: None,
            svg: Some(fresh.clone()),
            strict: true,
        };
        let mut said = Vec::new();
        replay::run(&options, &file, &mut said, &mut Vec::new(), None).expect("it is replayed");
        let picture = fs::read_to_string(fresh).expect("it is drawn");
        let committed = folder.join(&name);
        if env::var_os("UPDATE_PICTURES").is_some() {
            fs::write(&committed, &picture).expect("written");
        }
        let committed = fs::read_to_string(committed).unwrap_or_default();
        assert!(
            picture == committed,
            "{name} is not what replay draws: UPDATE_PICTURES=1 cargo test --test pictures"
        );
        let lines = picture.replace(&*route.name, "");
        if let Some(other) = others.insert(lines, name.clone()) {
            panic!("{name} shows nothing that {other} does not show");
        }
    }
}
