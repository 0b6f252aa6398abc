//! Files that include others: one configuration, and each problem in its own file.

use super::FRAME;
use crate::config::{Diagnostics, Live, NamePattern, Plan, Retired, Text, Watched, describe, read};
use crate::flow::Instant;
use std::{
    fs,
    path::{Path, PathBuf},
};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self) -> Result<Plan, Diagnostics> {
        read(&self.path("gateway.yaml"))
    }

    #[track_caller]
    fn plan(&self) -> Plan {
        self.read().unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Returns the problems, with names from this folder.
    #[track_caller]
    fn problems(&self) -> String {
        let problems = self.read().expect_err("it is rejected").to_string();
        problems.replace(&format!("{}/", self.0.path().display()), "")
    }

    /// Returns the problems as `FILE:LINE:COLUMN MESSAGE`.
    #[track_caller]
    fn lines(&self) -> Vec<String> {
        let problems = self.read().expect_err("it is rejected");
        let name = |path: &Path| path.strip_prefix(self.0.path()).unwrap().display().to_string();
        let line = |diagnostic: crate::config::Diagnostic| {
            format!(
                "{}:{}:{} {}",
                name(&diagnostic.file),
                diagnostic.line,
                diagnostic.column,
                diagnostic.message
            )
        };
        problems.list().map(line).collect()
    }
}

fn route(name: &str) -> String {
    format!("routes:\n  - name: {name}\n    match: {{ path: /{name} }}\n    upstream: app\n")
}

#[test]
fn the_lists_of_all_files_are_joined_in_the_order_of_the_include() {
    let folder = Folder::new(&[
        (
            "gateway.yaml",
            &format!(
                "{FRAME}include: [z.yaml, conf.d, 'sites/?-*.yaml']\n{}end: true\n",
                route("main")
            ),
        ),
        ("z.yaml", &route("z")),
        ("conf.d/b.yaml", &(route("b") + "end: true\n")),
        ("conf.d/a.yaml", "# none yet\n"),
        ("conf.d/.hidden.yaml", "no: file"),
        ("conf.d/c.yml", "no: file"),
        ("conf.d/d.yaml/x", "a folder"),
        (
            "sites/1-x.yaml",
            &format!(
                "include: ../deep/y.yaml\n{}upstreams: [{{ name: own, servers: [{{ url: http://a }}] }}]\n",
                route("x")
            ),
        ),
        ("sites/22-y.yaml", "no: file"),
        (
            "deep/y.yaml",
            &format!(
                "{}listeners:\n  - {{ name: second, listen: 127.0.0.1:8081 }}\n",
                route("y").replace("app", "own")
            ),
        ),
    ]);
    let plan = folder.plan();
    let names: Vec<_> = plan.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["main", "z", "b", "x", "y"]);
    assert_eq!((plan.listeners.len(), plan.upstreams.len()), (2, 2));
    assert!(describe(&plan).contains("gateway.yaml with 5 included files: 2 listeners"));
    let file = |name: &str| Watched::File(folder.path(name));
    let names = |name: &str, pattern| Watched::Names(folder.path(name), NamePattern::new(pattern));
    assert_eq!(
        plan.files,
        [
            file("gateway.yaml"),
            file("z.yaml"),
            names("conf.d", "*.yaml"),
            file("conf.d/a.yaml"),
            file("conf.d/b.yaml"),
            names("sites", "?-*.yaml"),
            file("sites/1-x.yaml"),
            file("sites/../deep/y.yaml"),
        ]
    );
    let hash = plan.hash.clone();
    folder.write("z.yaml", &route("zz"));
    assert_ne!(folder.plan().hash, hash);
}

#[test]
fn the_first_file_may_leave_its_lists_to_others() {
    let folder = Folder::new(&[
        ("gateway.yaml", "include: [all.yaml]\nend: true\n"),
        ("all.yaml", &format!("{FRAME}{}", route("a"))),
    ]);
    assert_eq!(folder.plan().routes.len(), 1);
    folder.write("all.yaml", &route("a"));
    let lines = folder.lines();
    assert_eq!(
        lines,
        ["gateway.yaml:1:1 the file needs `listeners`", "all.yaml:4:15 there is no upstream `app`"]
    );
}

#[test]
fn names_are_unique_over_all_files_and_both_places_are_shown() {
    let folder = Folder::new(&[
        ("gateway.yaml", &format!("{FRAME}include: conf.d/*.yaml\n{}", route("same"))),
        ("conf.d/a.yaml", &format!("\n# ä\n{}", route("same"))),
    ]);
    let problems = folder.problems();
    let expected = "\
error: two routes share the name `same`
 --> conf.d/a.yaml:4:11
  |
4 |   - name: same
  |           ^^^^ again here
  |
 ::: gateway.yaml:5:11
  |
5 |   - name: same
  |           ---- first here
  |
  = help: write another name: it distinguishes them in logs, metrics and reloads";
    assert_eq!(problems, expected, "{problems}");
}

#[test]
fn each_problem_is_in_its_file() {
    let folder = Folder::new(&[
        (
            "gateway.yaml",
            &format!("{FRAME}include: [a.yaml, b.yaml, c.yaml, d.yaml]\nworkers: 0\n"),
        ),
        (
            "a.yaml",
            "routes:\n  - name: a\n    match: { path: / }\n    upstream: no-such\n    flow: [{ name: r, limit: ${NOT_SET_BY_TESTS}/s }]\nlimits: {}\nroutes: []\n",
        ),
        ("b.yaml", "routes: { name: b }\nend: maybe\ninclude: { a: b }\n"),
        ("c.yaml", ""),
        ("d.yaml", "- name: d\n"),
    ]);
    assert_eq!(
        folder.lines(),
        [
            "gateway.yaml:4:10 `workers` cannot be 0",
            "a.yaml:4:15 there is no upstream `no-such`",
            "a.yaml:5:30 the variable `NOT_SET_BY_TESTS` is not set",
            "a.yaml:6:1 an included file takes no `limits`",
            "a.yaml:7:1 `routes` is written twice",
            "b.yaml:1:9 expected a list for `routes`",
            "b.yaml:2:6 `end` is neither true nor false",
            "b.yaml:3:10 expected a file name for `include`, or a list of them",
            "c.yaml:1:1 the included file is empty",
            "d.yaml:1:1 an included file is a map",
        ]
    );
    folder.write("b.yaml", "routes:\n\t- name: b\n");
    folder.write("c.yaml", "end: true\nroutes: []\n");
    folder.write("d.yaml", "a: [1\nb: 2\n");
    let lines = folder.lines();
    assert_eq!(
        lines,
        [
            "b.yaml:2:1 a tab is used where YAML requires spaces",
            "d.yaml:1:4 the `[` that opens here is never closed"
        ],
        "nothing else is certain"
    );
    folder.write("b.yaml", "");
    folder.write("d.yaml", "");
    assert!(
        folder.lines().contains(&"c.yaml:1:1 `end` is not the last key of the file".to_owned())
    );
}

#[test]
fn what_cannot_be_included_is_said_at_the_include() {
    let deep: Vec<_> =
        (0..10).map(|n| (format!("deep/{n}.yaml"), format!("include: {}.yaml\n", n + 1))).collect();
    let folder = Folder::new(&[
        (
            "gateway.yaml",
            &format!(
                "{FRAME}include:\n  - none.yaml\n  - none/*.yaml\n  - a.yaml\n  - ./a.yaml\n  - deep/0.yaml\n  - bytes.yaml\n"
            ),
        ),
        // A circle.
        ("a.yaml", "include: gateway.yaml\n"),
    ]);
    for (name, text) in &deep {
        folder.write(name, text);
    }
    fs::write(folder.path("bytes.yaml"), b"a: \xff").unwrap();
    let lines: Vec<_> = folder
        .lines()
        .iter()
        .map(|line| line.replace(&*folder.0.path().to_string_lossy(), ""))
        .collect();
    let expected = [
        "gateway.yaml:4:5 cannot read the included file `/none.yaml`: No such file or directory (os error 2)",
        "gateway.yaml:5:5 cannot read the folder `/none`: No such file or directory (os error 2)",
        "gateway.yaml:7:5 the file `/./a.yaml` is included already",
        "a.yaml:1:10 the file `/gateway.yaml` is included already",
        "deep/7.yaml:1:10 files include each other more than 8 deep",
        "bytes.yaml:1:4 the file is not UTF-8",
    ];
    assert_eq!(lines, expected);
    let files = folder.read().unwrap_err().files();
    let awaited = Watched::File(folder.path("none.yaml"));
    assert!(files.contains(&awaited), "its creation is seen: {files:?}");
}

#[test]
fn the_files_have_one_bound_together() {
    let folder = Folder::new(&[("gateway.yaml", &format!("{FRAME}include: '?.yaml'\n"))]);
    let large = fs::File::create(folder.path("a.yaml")).unwrap();
    large.set_len(16 * 1024 * 1024).unwrap();
    assert_eq!(folder.lines(), ["gateway.yaml:3:10 the files are larger than 16 MiB together"]);
}

#[test]
fn names_of_files_are_meant_from_the_file_that_they_stand_in() {
    let folder = Folder::new(&[
        ("gateway.yaml", &format!("{FRAME}include: sites/a.yaml\n{}", route("r"))),
        (
            "sites/a.yaml",
            "listeners: [{ name: tls, listen: 127.0.0.1:8443, tls: { certificates: [{ cert: certs/a.pem, key: certs/a.key }] } }]\n",
        ),
    ]);
    let problems = folder.read().unwrap_err();
    let certificate = folder.path("sites/certs/a.pem");
    assert_eq!(problems.certificate_files(), [(certificate, folder.path("sites/certs/a.key"))]);
}

#[test]
fn a_part_of_an_included_file_is_not_taken() {
    let whole = route("a") + &route("b").replace("routes:\n", "");
    let folder = Folder::new(&[
        ("gateway.yaml", &format!("{FRAME}include: conf.d\nend: true\n")),
        ("conf.d/a.yaml", &whole),
        ("conf.d/b.yaml", &route("c")),
    ]);
    let now = Instant::EPOCH;
    let live = Live::start(folder.plan(), now);
    let read = || live.read(&folder.path("gateway.yaml"));
    folder.write("conf.d/a.yaml", &route("a"));
    let doubt = live.doubt(&read().unwrap()).expect("it lacks a route").to_string();
    assert!(
        doubt.contains("it is the beginning of the file in force, and lacks its last 3 lines"),
        "{doubt}"
    );
    assert!(doubt.contains("conf.d/a.yaml:4:18"), "{doubt}");
    folder.write("conf.d/a.yaml", &(route("a") + "end: true\n"));
    let sealed = read().unwrap();
    assert!(live.doubt(&sealed).is_none());
    live.apply(sealed, now, &mut Retired::default());
    folder.write("conf.d/a.yaml", &route("aa"));
    let problems = read().unwrap_err().to_string();
    assert!(
        problems.contains("this one does not") && problems.contains("conf.d/a.yaml:1:1"),
        "{problems}"
    );
    fs::remove_file(folder.path("conf.d/a.yaml")).unwrap();
    let without = read().unwrap();
    assert!(live.doubt(&without).is_none(), "a whole file may go");
    assert_eq!(without.routes.len(), 1);
    let remarks = without.remarks_at(now).to_string();
    assert!(remarks.contains("conf.d/b.yaml:4:18"), "the file that has no mark: {remarks}");
}

#[test]
fn texts_are_read_once_for_all_uses() {
    let folder = Folder::new(&[
        ("gateway.yaml", &format!("{FRAME}include: a.yaml\n")),
        ("a.yaml", &route("a")),
    ]);
    let text = Text::read(&folder.path("gateway.yaml")).unwrap();
    folder.write("a.yaml", "");
    assert!(text.plan().is_ok() && text.rules().is_ok());
}

#[test]
fn files_that_no_pattern_reads_are_a_warning() {
    let folder = Folder::new(&[
        (
            "gateway.yaml",
            &format!(
                "{FRAME}include: [conf.d, 'both/*.yaml', 'both/*.yml', 'none/*']\n{}",
                route("a")
            ),
        ),
        ("conf.d/b.yaml", &route("b")),
        ("conf.d/c.yml", &route("c")),
        ("both/d.yaml", &route("d")),
        ("both/e.yml", &route("e")),
        ("none/.hidden", ""),
    ]);
    let plan = folder.plan();
    assert_eq!(plan.routes.len(), 4);
    let found: Vec<_> = plan.warnings.list().map(|warning| warning.message).collect();
    let shown = |name: &str| folder.path(name).display().to_string();
    let expected = [
        format!("the file `{}` is not read", shown("conf.d/c.yml")),
        format!("`{}` finds no file", shown("none/*")),
    ];
    assert_eq!(found, expected);
    assert!(plan.warnings.to_string().contains("include `conf.d/*.yml` as well"));
    // Neither an empty folder nor a file of another program is worth a warning.
    folder.write("conf.d/c.yml", "services: { routes: {} }\n");
    for include in ["none", "none/", "'none/*.yaml'", "conf.d/", "['conf.d/*.yaml']"] {
        folder.write("gateway.yaml", &format!("{FRAME}include: {include}\n{}", route("a")));
        assert_eq!(folder.plan().warnings.to_string(), "", "{include}");
    }
    folder.write("conf.d/c.yml", "# Routes\nroutes: []\n");
    folder.write("gateway.yaml", &format!("{FRAME}include: 'conf.d/c*.yaml'\n{}", route("a")));
    let warnings = folder.plan().warnings.to_string();
    assert!(warnings.contains("include `conf.d/c*.yml` as well"), "{warnings}");
}
