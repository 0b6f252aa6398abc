//! What README.md and docs/*.md say to run does what they show.
//!
//! Each page is followed from top to bottom, as a reader with a fresh clone would, in a copy of the
//! repository and a home folder of its own; `flowgate` on the PATH is the program under test. `cd`
//! lasts from block to block; variables do not. How to write blocks:
//!
//! | fence | what the test does |
//! |---|---|
//! | ```` ```console ```` | Runs each line after `$ ` (further lines of one command begin with `> `), and compares what it prints, errors too, with the lines up to the next `$ `. A command that shows no output must print none and succeed. |
//! | ```` ```sh ```` | Runs all of it as one script, which must succeed. Its output is not compared. |
//! | ```` ```console background ```` | Starts the command, which runs until the page ends, and waits until the lines shown have appeared. Show a line that says it is ready. |
//! | ```` ```text log ```` | Waits until the lines shown have appeared in the output of the latest background command. Show the reload's line after each edit of a file: what follows then meets the new rules. |
//! | ```` ```text ctrl-c ```` | Ends the latest background command as Ctrl-C does. |
//! | ```` ```sh no-run: REASON ```` | Nothing, for what installs, downloads or builds. Such blocks are counted. |
//!
//! A line `…` stands for any lines, or none; `…` within a line for any text, or none. Times as RFC
//! 3339 and HTTP write them match any other. After `numbers-vary` in the fence any number matches
//! any other. Ports are others than shown, so that nobody else has them: write `127.0.0.1:8080`,
//! `localhost:8443`, `:9901` and `:9000` as they are. The clone is `~/flowgate`.
//!
//! When README.md has been followed, no file of the checkout may have changed, and none been added
//! but what .gitignore lists.

#[path = "docs/links.rs"]
mod links;
#[path = "docs/page.rs"]
mod page;
#[path = "docs/ports.rs"]
mod ports;
#[path = "docs/shell.rs"]
mod shell;
#[path = "docs/shown.rs"]
mod shown;

use page::{Block, Kind};
use ports::Ports;
use shell::Shell;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
};

/// More blocks than these that are not run would be a page that nobody checks.
const MOST_NOT_RUN: usize = 8;

/// What readers have, but for what commands of the pages do not need.
const LEFT_OUT: [&str; 6] = ["target", ".git", "src", "tests", "benches", "flowgate-demo"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages, by their names from the root.
fn pages() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).expect("there are docs");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("it is listed").file_name().into_string().expect("UTF-8"))
        .filter(|name| Path::new(name).extension().is_some_and(|kind| kind == "md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    names.push("README.md".to_owned());
    names.sort();
    names
}

fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(root().join(page)).expect("it is text");
    let blocks = page::blocks(&text).map_err(|wrong| format!("{page}:{wrong}"));
    blocks.expect("each block says how it is run")
}

/// Variables stand for text that YAML does not see.
#[test]
fn every_example_in_yaml_can_be_read() {
    let variable = regex::Regex::new(r"\$\{[^}]*\}").expect("a pattern");
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).expect("it is text");
        for (line, yaml) in page::yaml(&text) {
            let yaml = variable.replace_all(&yaml, "value");
            if let Err(error) = serde_yaml::from_str::<serde_json::Value>(&yaml) {
                wrong.push(format!("{page}:{line}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let others = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let pages = pages().into_iter().chain(others.map(str::to_owned));
    let broken: Vec<_> = pages.flat_map(|page| links::broken(&root().join(page))).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_page_shows_what_happens() {
    let follow = |page: String| thread::spawn(move || follow(&page));
    let threads: Vec<_> = pages().into_iter().map(follow).collect();
    let done = threads.into_iter().map(|thread| thread.join().expect("it says what is wrong"));
    let failures: Vec<_> = done.filter_map(Result::err).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn few_blocks_are_not_run() {
    let pages = pages();
    let all = pages.iter().flat_map(|page| blocks(page));
    let not_run = all.filter(|block| matches!(block.kind, Kind::NotRun)).count();
    assert!(not_run <= MOST_NOT_RUN, "{not_run} blocks are not run");
}

/// README.md shows a file and a response before it says how to start anything: here the gateway runs
/// by that file, and a sixth login must get that response. The commands for a first gateway work with
/// this file, too.
#[test]
fn the_first_file_of_the_readme_gives_the_response_below_it() {
    let text = fs::read_to_string(root().join("README.md")).expect("it is text");
    let (_, yaml) = page::yaml(&text).swap_remove(0);
    for needed in ["path_prefix: / }", "\nadmin:", "\nend: true"] {
        assert!(format!("\n{yaml}").contains(needed), "{needed} in {yaml}");
    }
    let (_, first) = text.split_once("## A first gateway\n").expect("a section");
    let (first, _) = first.split_once("\n## ").expect("it ends");
    let mut of_section: Vec<Block> = page::blocks(first).expect("each says how it is run");
    // What writes another file.
    of_section.remove(0);
    let (_, rest) = text.split_once("```text\n").expect("a response is shown");
    let (response, _) = rest.split_once("```").expect("it ends");
    let page = format!(
        "```sh\ncat > gateway.yaml <<'END'\n{yaml}\nEND\n```\n\
         ```console background\n$ flowgate gateway.yaml\n… ready …\n```\n\
         ```sh\ncurl -s 'http://127.0.0.1:8080/login?[1-5]'\n```\n\
         ```console numbers-vary\n$ curl -si http://127.0.0.1:8080/login\n{response}```\n"
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut shell = Shell::new(folder.path(), folder.path(), Ports::free());
    for block in page::blocks(&page).expect("each says how it is run") {
        assert_eq!(shell.follow(&block), Ok(()), "{page}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut shell = Shell::new(folder.path(), folder.path(), Ports::free());
    let file = format!(
        "```sh\nmkdir ~/gateway\ncd ~/gateway\ncat > gateway.yaml <<'END'\n{yaml}\nEND\n```\n"
    );
    let file = page::blocks(&file).expect("it says how it is run");
    for block in file.iter().chain(&of_section) {
        assert_eq!(shell.follow(block), Ok(()), "{first}");
    }
}

/// Follows a page, and says where something else happens.
fn follow(page: &str) -> Result<(), String> {
    let blocks = blocks(page);
    if blocks.is_empty() {
        return Ok(());
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let checkout = folder.path().join("home/flowgate");
    copy(root(), &checkout, &LEFT_OUT);
    let ports = Ports::free();
    ports.prepare(&checkout);
    let before = files(&checkout);
    let mut shell = Shell::new(&checkout, folder.path(), ports);
    for block in &blocks {
        shell.follow(block).map_err(|wrong| format!("{page}:{wrong}"))?;
    }
    drop(shell);
    if page == "README.md" { unchanged(&before, &files(&checkout)) } else { Ok(()) }
}

/// Says what of the checkout is not as it was.
fn unchanged(
    before: &BTreeMap<PathBuf, Vec<u8>>,
    after: &BTreeMap<PathBuf, Vec<u8>>,
) -> Result<(), String> {
    let ignored = fs::read_to_string(root().join(".gitignore")).expect("it is there");
    let is_ignored = |path: &Path| {
        let folders = ignored.lines().filter_map(|line| line.strip_prefix('/'));
        folders.into_iter().any(|folder| path.starts_with(folder))
    };
    let changed = before.iter().filter(|(path, bytes)| after.get(*path) != Some(bytes));
    let added = after.keys().filter(|path| !before.contains_key(*path));
    let both = changed.map(|(path, _)| path).chain(added);
    let named: Vec<_> = both.filter(|path| !is_ignored(path)).collect();
    if named.is_empty() {
        Ok(())
    } else {
        Err(format!("README.md: following it changes the checkout: {named:?}"))
    }
}

fn copy(from: &Path, to: &Path, left_out: &[&str]) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("it is a folder") {
        let entry = entry.expect("it is listed");
        let name = entry.file_name();
        let is_private = Path::new(&name)
            .extension()
            .is_some_and(|extension| extension == "key" || extension == "pem");
        if left_out.iter().any(|left| name == *left) || is_private {
            continue;
        }
        if entry.file_type().expect("it has one").is_dir() {
            copy(&entry.path(), &to.join(name), &[]);
        } else {
            fs::copy(entry.path(), to.join(name)).expect("copied");
        }
    }
}

/// Returns every file below `folder` with what it holds.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("it is a folder") {
            let path = entry.expect("it is listed").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below").to_owned();
                all.insert(name, fs::read(&path).expect("it can be read"));
            }
        }
    }
    all
}
