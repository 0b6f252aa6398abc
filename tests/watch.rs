//! The watcher on a real file system: whatever way a file is edited, the new text is taken, and
//! what is not a whole file never is.
//!
//! Nothing here sleeps. Each test awaits the watcher's word, reads, and compares, until it has seen
//! what it waits for or its deadline is past.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use flowgate::{
    config::{Live, Plan, Retired, Watched, promises, watch},
    flow::Instant,
};
use std::{
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{sync::mpsc::Receiver, time::timeout};

/// Far more than any edit takes to be seen, even on a loaded machine.
const DEADLINE: Duration = Duration::from_mins(5);

/// Longer than an event takes to arrive, even on a loaded machine.
const SILENCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_shell_that_writes_over_the_file() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    shell(gateway.folder.path(), &format!("printf '%s' '{}' > gateway.yaml", file(2)));
    gateway.sees(2).await;
    // Again: a watch that goes deaf after the first edit is the usual mistake.
    shell(gateway.folder.path(), &format!("printf '%s' '{}' > gateway.yaml", file(3)));
    gateway.sees(3).await;
}

#[tokio::test]
async fn a_shell_that_appends_to_the_file() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    let before = gateway.live.load().hash.clone();
    shell(gateway.folder.path(), "echo '# by hand' >> gateway.yaml");
    gateway.waits_for(|plan| plan.hash != before).await;
}

#[tokio::test]
async fn sed_in_place() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    for workers in 2..5 {
        let edit = format!("sed -i 's/workers: .*/workers: {workers}/' gateway.yaml");
        shell(gateway.folder.path(), &edit);
        gateway.sees(workers).await;
    }
}

#[tokio::test]
async fn an_editor_that_moves_the_old_file_away_and_writes_a_new_one() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    for workers in 2..4 {
        let path = gateway.path.clone();
        let backup = gateway.folder.path().join("gateway.yaml~");
        fs::rename(&path, &backup).unwrap();
        fs::write(&path, file(workers)).unwrap();
        fs::remove_file(&backup).unwrap();
        gateway.sees(workers).await;
    }
}

#[tokio::test]
async fn a_file_moved_over_the_old_one() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    for workers in 2..4 {
        let new = gateway.folder.path().join(".new");
        fs::write(&new, file(workers)).unwrap();
        fs::rename(&new, &gateway.path).unwrap();
        gateway.sees(workers).await;
    }
}

#[tokio::test]
async fn a_config_map_whose_symlink_is_swapped() {
    let mut gateway = Gateway::start(|folder| {
        fs::create_dir(folder.join("..v1")).unwrap();
        symlink("..v1", folder.join("..data")).unwrap();
        symlink("..data/gateway.yaml", folder.join("gateway.yaml")).unwrap();
        folder.join("gateway.yaml")
    });
    for workers in 2..5 {
        let folder = gateway.folder.path();
        let version = format!("..v{workers}");
        fs::create_dir(folder.join(&version)).unwrap();
        fs::write(folder.join(&version).join("gateway.yaml"), file(workers)).unwrap();
        symlink(&version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        fs::remove_dir_all(folder.join(format!("..v{}", workers - 1))).unwrap();
        gateway.sees(workers).await;
    }
}

#[tokio::test]
async fn a_deleted_file_changes_nothing_and_its_return_is_seen() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    fs::remove_file(&gateway.path).unwrap();
    gateway.rejects("No such file").await;
    fs::write(&gateway.path, file(2)).unwrap();
    gateway.sees(2).await;
}

#[tokio::test]
async fn a_torn_write_is_never_taken() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    let whole = file(2);
    // Cut before the mark that ends the file; what is left is valid YAML and a whole configuration.
    let cut = whole.find("end: true").unwrap();
    fs::write(&gateway.path, &whole[..cut]).unwrap();
    gateway.rejects("the file looks cut short").await;
    fs::write(&gateway.path, "").unwrap();
    gateway.rejects("the file is empty").await;
    fs::write(&gateway.path, &whole[..20]).unwrap();
    gateway.rejects("gateway.yaml:").await;
    assert_eq!(gateway.workers(), 1);
    fs::write(&gateway.path, &whole).unwrap();
    gateway.sees(2).await;
}

#[tokio::test]
async fn a_writer_that_takes_its_time_is_waited_for() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    gateway.is_silent().await;
    let whole = file(2);
    let (begin, rest) = whole.split_at(whole.find("end: true").unwrap());
    let mut writer = fs::File::create(&gateway.path).unwrap();
    writer.write_all(begin.as_bytes()).unwrap();
    // What is there would be taken if it had not to end with `end: true`.
    assert!(timeout(SILENCE, gateway.changes.recv()).await.is_err(), "it is not closed");
    assert!(gateway.watcher.is_being_written());
    writer.write_all(rest.as_bytes()).unwrap();
    drop(writer);
    gateway.sees(2).await;
    assert!(!gateway.watcher.is_being_written());
}

#[tokio::test]
async fn a_writer_whose_file_is_replaced_or_removed_is_not_waited_for() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    let begin = |gateway: &Gateway| {
        let mut writer = fs::File::create(&gateway.path).unwrap();
        writer.write_all(b"workers").unwrap();
        writer
    };
    let lost = begin(&gateway);
    let new = gateway.folder.path().join(".new");
    fs::write(&new, file(2)).unwrap();
    fs::rename(&new, &gateway.path).unwrap();
    gateway.sees(2).await;
    assert!(!gateway.watcher.is_being_written());
    drop(lost);
    let lost = begin(&gateway);
    fs::remove_file(&gateway.path).unwrap();
    gateway.rejects("No such file").await;
    fs::write(&gateway.path, file(3)).unwrap();
    gateway.sees(3).await;
    assert!(!gateway.watcher.is_being_written());
    drop(lost);
}

#[tokio::test]
async fn a_mistake_is_rejected_and_its_correction_taken() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    fs::write(&gateway.path, file(2).replace("upstream: app", "upstream: ap")).unwrap();
    gateway.rejects("there is no upstream `ap`").await;
    assert_eq!(gateway.workers(), 1);
    fs::write(&gateway.path, file(3)).unwrap();
    gateway.sees(3).await;
}

#[tokio::test]
async fn certificates_in_another_folder_are_watched_as_well() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    let other = tempfile::tempdir().unwrap();
    let certificate = other.path().join("site.pem");
    let files = Watched::files([gateway.path.clone(), certificate.clone()]);
    gateway.watcher.set(&files).unwrap();
    gateway.is_silent().await;
    fs::write(&certificate, "new").unwrap();
    gateway.changes().await;
}

#[tokio::test]
async fn a_certificate_is_seen_that_is_made_later_with_its_folder() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    let certs = gateway.folder.path().join("certs");
    let files = Watched::files([gateway.path.clone(), certs.join("site.pem")]);
    gateway.watcher.set(&files).unwrap();
    gateway.is_silent().await;
    fs::create_dir(&certs).unwrap();
    gateway.changes().await;
    gateway.watcher.set(&files).unwrap();
    gateway.is_silent().await;
    fs::write(certs.join("site.pem"), "new").unwrap();
    gateway.changes().await;
}

#[tokio::test]
async fn a_folder_that_is_removed_and_made_again_is_still_watched() {
    let mut gateway = Gateway::start(|folder| {
        fs::create_dir(folder.join("etc")).unwrap();
        folder.join("etc/gateway.yaml")
    });
    let etc = gateway.folder.path().join("etc");
    gateway.is_silent().await;
    fs::remove_dir_all(&etc).unwrap();
    gateway.rejects("No such file").await;
    gateway.watcher.set(&Watched::files([gateway.path.clone()])).unwrap();
    gateway.is_silent().await;
    fs::create_dir(&etc).unwrap();
    gateway.changes().await;
    gateway.watcher.set(&Watched::files([gateway.path.clone()])).unwrap();
    fs::write(&gateway.path, file(2)).unwrap();
    gateway.sees(2).await;
}

#[tokio::test]
async fn reads_and_other_files_of_the_folder_are_no_change() {
    let mut gateway = Gateway::start(|folder| folder.join("gateway.yaml"));
    gateway.is_silent().await;
    for line in ["one", "two", "three"] {
        gateway.live.read(&gateway.path).unwrap();
        shell(gateway.folder.path(), &format!("echo {line} >> access.log"));
    }
    shell(gateway.folder.path(), "mv access.log access.log.1; : > access.log; rm access.log.1");
    assert!(timeout(SILENCE, gateway.changes.recv()).await.is_err(), "no file was edited");
    fs::write(&gateway.path, file(2)).unwrap();
    gateway.sees(2).await;
}

#[tokio::test]
async fn a_folder_of_included_files() {
    let mut gateway = Gateway::start(|folder| {
        fs::create_dir(folder.join("conf.d")).unwrap();
        folder.join("gateway.yaml")
    });
    let conf = gateway.folder.path().join("conf.d");
    let site = |name: &str| {
        format!("routes: [{{ name: {name}, match: {{ path: /x }}, upstream: app }}]\n")
    };
    let routes = |plan: &Plan| -> Vec<String> {
        promises(plan).into_iter().map(|promise| promise.route).filter(|name| name != "r").collect()
    };
    fs::write(&gateway.path, format!("include: conf.d\n{}", file(2))).unwrap();
    gateway.sees(2).await;
    fs::write(conf.join("a.yaml"), site("new")).unwrap();
    gateway.waits_for(|plan| routes(plan) == ["new"]).await;
    // The file may have been read between two events of its writing.
    while timeout(SILENCE, gateway.changes.recv()).await.is_ok() {}
    fs::write(conf.join(".a.yaml.swp"), site("swap")).unwrap();
    fs::write(conf.join("a.yaml~"), site("backup")).unwrap();
    fs::write(conf.join("notes"), "text").unwrap();
    assert!(timeout(SILENCE, gateway.changes.recv()).await.is_err(), "no file was included");
    shell(&conf, "sed -i 's/new/edited/' a.yaml");
    gateway.waits_for(|plan| routes(plan) == ["edited"]).await;
    shell(&conf, "mv a.yaml b.yaml");
    gateway.waits_for(|plan| plan.files.contains(&Watched::File(conf.join("b.yaml")))).await;
    fs::write(conf.join("b.yaml"), "routes:").unwrap();
    gateway.rejects("b.yaml:1:7: expected a list").await;
    fs::write(conf.join("b.yaml"), site("mended")).unwrap();
    gateway.waits_for(|plan| routes(plan) == ["mended"]).await;
    fs::remove_file(conf.join("b.yaml")).unwrap();
    gateway.waits_for(|plan| routes(plan).is_empty()).await;
    // A file that is written slowly is waited for, though it is new.
    gateway.is_silent().await;
    let mut writer = fs::File::create(conf.join("slow.yaml")).unwrap();
    gateway.changes().await;
    writer.write_all(site("slow").as_bytes()).unwrap();
    gateway.is_silent().await;
    assert!(gateway.watcher.is_being_written());
    drop(writer);
    gateway.waits_for(|plan| routes(plan) == ["slow"]).await;
}

#[tokio::test]
async fn a_config_map_of_included_files() {
    let fill = |folder: &Path, version: &str, names: &[&str]| {
        fs::create_dir(folder.join(version)).unwrap();
        for name in names {
            let text = format!(
                "routes: [{{ name: {name}{version}, match: {{ path: /{name} }}, upstream: app }}]\n"
            );
            fs::write(folder.join(version).join(name), text).unwrap();
        }
    };
    let mut gateway = Gateway::start(|folder| {
        let map = folder.join("map");
        fs::create_dir(&map).unwrap();
        fill(&map, "..1", &["a.yaml"]);
        symlink("..1", map.join("..data")).unwrap();
        symlink("..data/a.yaml", map.join("a.yaml")).unwrap();
        folder.join("gateway.yaml")
    });
    let map = gateway.folder.path().join("map");
    fs::write(&gateway.path, format!("include: map/*.yaml\n{}", file(2))).unwrap();
    gateway.sees(2).await;
    // As the kubelet does: a new folder, the links of new keys, the swap, the old folder.
    fill(&map, "..2", &["a.yaml", "b.yaml"]);
    symlink("..2", map.join("..data_tmp")).unwrap();
    fs::rename(map.join("..data_tmp"), map.join("..data")).unwrap();
    symlink("..data/b.yaml", map.join("b.yaml")).unwrap();
    fs::remove_dir_all(map.join("..1")).unwrap();
    gateway.waits_for(|plan| promises(plan).len() == 3).await;
    fill(&map, "..3", &["a.yaml", "b.yaml"]);
    symlink("..3", map.join("..data_tmp")).unwrap();
    fs::rename(map.join("..data_tmp"), map.join("..data")).unwrap();
    gateway.waits_for(|plan| promises(plan).iter().any(|one| one.route == "b.yaml..3")).await;
}

/// A gateway's control thread in small: reads and applies whenever the watcher says so.
struct Gateway {
    folder: TempDir,
    path: PathBuf,
    watcher: watch::Watcher,
    changes: Receiver<()>,
    live: Live,
    retired: Retired,
}

impl Gateway {
    /// Starts with a file that `lay_out` says the path of, which may pass through symlinks.
    fn start(lay_out: impl FnOnce(&Path) -> PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = lay_out(folder.path());
        fs::write(&path, file(1)).unwrap();
        let plan = flowgate::config::read(&path).unwrap();
        let (mut watcher, changes) = watch::watch().unwrap();
        watcher.set(&plan.files).unwrap();
        let live = Live::start(plan, Instant::EPOCH);
        Self { folder, path, watcher, changes, live, retired: Retired::default() }
    }

    async fn sees(&mut self, workers: usize) {
        self.waits_for(|plan| plan.settings.workers.get() == workers).await;
        assert_eq!(self.workers(), workers);
    }

    /// Reads at every change until a plan is as wanted, and puts it in force.
    async fn waits_for(&mut self, is_wanted: impl Fn(&Plan) -> bool) {
        let wait = async {
            loop {
                self.changes.recv().await.expect("the watcher lives");
                if let Ok(plan) = self.live.read(&self.path)
                    && is_wanted(&plan)
                {
                    self.watcher.set(&plan.files).unwrap();
                    self.live.apply(plan, Instant::EPOCH, &mut self.retired);
                    return;
                }
            }
        };
        timeout(DEADLINE, wait).await.expect("the edit is seen in time");
    }

    /// Reads at every change until it is rejected with these words.
    async fn rejects(&mut self, words: &str) {
        let wait = async {
            loop {
                self.changes.recv().await.expect("the watcher lives");
                if let Err(problems) = self.live.read(&self.path)
                    && problems.summary().contains(words)
                {
                    return;
                }
            }
        };
        timeout(DEADLINE, wait).await.expect("the edit is seen in time");
    }

    fn workers(&self) -> usize {
        self.live.load().settings.workers.get()
    }

    /// Waits until what happened before has been said.
    async fn is_silent(&mut self) {
        while timeout(SILENCE, self.changes.recv()).await.is_ok() {}
    }

    /// Waits for a change.
    async fn changes(&mut self) {
        timeout(DEADLINE, self.changes.recv()).await.expect("it is seen in time").unwrap();
    }
}

fn file(workers: usize) -> String {
    format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
upstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}]
routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app }}]
workers: {workers}
end: true
"
    )
}

fn shell(folder: &Path, command: &str) {
    let status = Command::new("sh").arg("-c").arg(command).current_dir(folder).status().unwrap();
    assert!(status.success(), "{command}");
}
