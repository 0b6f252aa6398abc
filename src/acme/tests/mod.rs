//! The life of certificates in virtual time, with an authority in memory that can fail in many ways.

mod authority;
mod validity;

use super::{Status, Task, Transport, storage::ChallengeKind};
use crate::{
    clock::Clock,
    config::{self, Live, Origin, Retired},
    flow::{Instant, WallOffset},
};
use authority::{Authority, Fault};
use std::{
    fs, io,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{sync::mpsc, task::JoinHandle};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// A folder, an authority, and the gateways that use both.
struct World {
    root: TempDir,
    clock: Clock,
    /// The time at the authority, whose clock does not step.
    authority_clock: Clock,
    authority: Arc<Mutex<Authority>>,
}

/// A gateway, as far as certificates need one.
struct Gateway {
    live: Arc<Live>,
    status: Arc<Status>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn text(certificates: &str) -> String {
    format!(
        "listeners:
  - {{ name: web, listen: 127.0.0.1:0 }}
  - {{ name: tls, listen: 127.0.0.1:0, tls: {{ certificates: [{certificates}] }} }}
acme: {{ storage: acme, directory: 'https://ca.example/directory', ca: ca.pem }}
routes: [{{ name: all, match: {{ path_prefix: / }}, respond: {{ status: 200 }} }}]
"
    )
}

const ONE: &str = "{ acme: [a.example] }";

impl World {
    fn new(lifetime: Duration) -> Self {
        let root = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["ca.example".to_owned()]).unwrap();
        fs::write(root.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();

        let challenges = root.path().join("acme/challenges");
        let verify = Box::new(move |kind: &str, name: &str, token: &str| {
            let read = |name| fs::read_to_string(challenges.join(kind).join(name));
            match kind {
                "http-01" => read(token).is_ok_and(|text| text.starts_with(&format!("{token}."))),
                _ => read(name).is_ok_and(|text| text.contains("PRIVATE KEY")),
            }
        });
        let clock = Clock::start();
        let authority_clock = Clock::start_at(clock.now());
        let authority = Arc::new(Mutex::new(Authority::new(lifetime, verify)));
        let world = Self { root, clock, authority_clock, authority };
        world.write(ONE);
        world
    }

    fn write(&self, certificates: &str) {
        fs::write(self.file(), text(certificates)).unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.root.path().join("gateway.yaml")
    }

    fn transport(&self) -> Transport {
        let authority = Arc::clone(&self.authority);
        let clock = self.authority_clock.clone();
        Arc::new(move |_, request| {
            let authority = Arc::clone(&authority);
            let now = clock.now().as_nanos() / 1_000_000_000;
            Box::pin(async move {
                let fault = authority.lock().unwrap().fault;
                if fault == Fault::Hanging {
                    core::future::pending::<()>().await;
                }
                if fault == Fault::Unreachable {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                Ok(authority.lock().unwrap().respond(&request, now))
            })
        })
    }

    /// Starts a gateway, which reads its file again when a certificate was written, and each second.
    fn start(&self) -> Gateway {
        let plan = config::read(&self.file()).unwrap();
        let live = Arc::new(Live::start(plan, self.clock.now()));
        let status = Arc::<Status>::default();
        let (sender, mut changed) = mpsc::channel(1);
        let task = Task::new(
            Arc::clone(&live),
            self.clock.clone(),
            Arc::clone(&status),
            self.transport(),
            sender,
        );

        let file = self.file();
        let clock = self.clock.clone();
        let reloaded = Arc::clone(&live);
        let reload = async move {
            while changed.recv().await.is_some() {
                let mut retired = Retired::default();
                reloaded.apply(config::read(&file).unwrap(), clock.now(), &mut retired);
            }
        };
        let tasks = [tokio::spawn(task.run()), tokio::spawn(reload)];
        Gateway { live, status, tasks }
    }

    fn fail(&self, fault: Fault) {
        self.authority.lock().unwrap().fault = fault;
    }

    fn orders(&self) -> usize {
        self.authority.lock().unwrap().orders().len()
    }

    async fn wait(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now() + time).await;
    }

    /// Waits, and checks each ten seconds that clients get a certificate which is valid by the true time.
    async fn wait_valid(&self, gateway: &Gateway, time: Duration) {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.wait(10 * SECOND).await;
            let now = self.authority_clock.now();
            let until = gateway.valid_until("a.example").expect("an issued certificate");
            assert!(now < until, "ended at {until:?}, and it is {now:?}");
        }
    }
}

impl Gateway {
    /// Returns the end of the certificate that clients get; `None` if it is self-signed.
    fn valid_until(&self, name: &str) -> Option<Instant> {
        let snapshot = self.live.load();
        let tls = snapshot.listener("tls").unwrap().tls.as_ref().unwrap();
        let shown = tls.find(Some(name), |_| true);
        assert!(shown.names.iter().any(|own| own == name), "{name}: {:?}", shown.names);
        (shown.origin == Origin::Acme).then(|| super::schedule::instant(shown.not_after))
    }

    fn reload(&self, world: &World) {
        let plan = config::read(&world.file()).unwrap();
        self.live.apply(plan, world.clock.now(), &mut Retired::default());
    }

    fn error(&self, certificate: &str) -> Option<String> {
        self.status.certificates()[certificate].error.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_life_has_a_valid_certificate_at_each_time() {
    let world = World::new(HOUR);
    let gateway = world.start();
    // Nothing was requested yet: clients get a self-signed one with the name.
    assert_eq!(gateway.valid_until("a.example"), None);
    world.wait(5 * SECOND).await;
    assert!(gateway.valid_until("a.example").is_some());
    assert_eq!(world.orders(), 1);

    // It is renewed once in each two thirds of its lifetime.
    world.wait_valid(&gateway, 6 * HOUR).await;
    let renewed = world.orders();
    assert!((9..=11).contains(&renewed), "{renewed}");

    // The authority is away for a quarter of an hour, as the certificate is due.
    for fault in [Fault::Unreachable, Fault::Hanging, Fault::Page] {
        world.wait_valid(&gateway, 30 * MINUTE).await;
        world.fail(fault);
        world.wait_valid(&gateway, 15 * MINUTE).await;
        world.fail(Fault::None);
    }

    // The clock of the gateway is a year ahead, and then right again.
    let before = world.orders();
    world.clock.set_wall(WallOffset::from_nanos(365 * 24 * 3_600_000_000_000));
    world.wait_valid(&gateway, 2 * HOUR).await;
    world.clock.set_wall(WallOffset::default());
    world.wait_valid(&gateway, 2 * HOUR).await;
    let orders = world.orders() - before;
    assert!((4..=9).contains(&orders), "{orders} orders in 4 h");
    assert_eq!(world.authority.lock().unwrap().accounts_made, 1);
}

#[tokio::test(start_paused = true)]
async fn no_failure_of_the_authority_takes_the_certificate_away_or_leads_to_many_requests() {
    for (fault, words) in [
        (Fault::Unreachable, "connection refused"),
        (Fault::Hanging, "does not respond within 30s"),
        (Fault::Garbage, "is no directory"),
        (Fault::WrongUrls, "has a URL without https"),
        (Fault::Huge, "larger than 1 MiB"),
        (Fault::Page, "503"),
        (Fault::RateLimited("3600"), "too many certificates (rateLimited)"),
        (Fault::RateLimited("99999999999999999999"), "rateLimited"),
        (Fault::RateLimited("18446744073709551615"), "rateLimited"),
        (Fault::RateLimited("soon"), "rateLimited"),
        (Fault::BadNonce, "badNonce"),
        (Fault::Pending, "not ended within 5m"),
        (Fault::Unauthorized, "cannot verify a.example: connection refused"),
        (Fault::OtherKey, "it is for another key"),
        (Fault::OtherName, "it lacks one of the names"),
        (Fault::NoChain, "cannot be read"),
        (Fault::WrongTokens, "does not fit"),
        (Fault::OtherOrder, "does not fit"),
        (Fault::OnlyDns, "neither HTTP-01 nor TLS-ALPN-01"),
    ] {
        let world = World::new(3 * HOUR);
        let gateway = world.start();
        world.wait(5 * SECOND).await;
        let until = gateway.valid_until("a.example").expect("issued");

        // Two thirds of the lifetime have passed by the clock of both.
        world.clock.set_wall(WallOffset::from_nanos(2 * 3_600_000_000_000));
        world.authority.lock().unwrap().clock_ahead = 2 * 3600;
        world.fail(fault);
        let before = world.authority.lock().unwrap().requests;
        world.wait(30 * MINUTE).await;

        assert_eq!(gateway.valid_until("a.example"), Some(until), "{fault:?}");
        let status = gateway.status.certificates()["a.example"].clone();
        let error = status.error.expect("a failure");
        assert!(error.contains(words), "{fault:?}: {error}");
        assert!((1..=5).contains(&status.failures), "{fault:?}: {}", status.failures);
        let requests = world.authority.lock().unwrap().requests - before;
        assert!(requests <= 5 * 70, "{fault:?}: {requests} requests in half an hour");
        assert!(gateway.status.failed() >= 1);

        // It recovers by itself, after a twelfth of the lifetime or what the authority has demanded.
        world.fail(Fault::None);
        world.wait(20 * MINUTE).await;
        if fault == Fault::RateLimited("3600") {
            assert_eq!(gateway.valid_until("a.example"), Some(until));
            world.wait(15 * MINUTE).await;
        }
        if fault != Fault::RateLimited("18446744073709551615") {
            assert!(gateway.valid_until("a.example") > Some(until), "{fault:?}");
            assert_eq!(gateway.error("a.example"), None);
        }
        // No answer to a challenge is left.
        let left = fs::read_dir(world.root.path().join("acme/challenges/http-01")).unwrap();
        assert_eq!(left.count(), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_challenges_are_tried_in_turn() {
    let world = World::new(HOUR);
    world.fail(Fault::Unauthorized);
    let _gateway = world.start();
    world.wait(10 * MINUTE).await;
    let tried = world.authority.lock().unwrap().challenges.clone();
    assert!(tried.len() >= 3, "{tried:?}");
    for (index, kind) in tried.iter().enumerate() {
        assert_eq!(kind, ["http-01", "tls-alpn-01"][index % 2], "{tried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn gateways_that_share_a_folder_order_once() {
    let world = World::new(HOUR);
    world.write("{ acme: [a.example] }, { acme: [b.example, c.example] }");
    let gateways = [world.start(), world.start(), world.start()];
    world.wait(MINUTE).await;
    let mut orders = world.authority.lock().unwrap().orders();
    orders.sort();
    assert_eq!(orders, [vec!["a.example"], vec!["b.example", "c.example"]]);
    assert_eq!(world.authority.lock().unwrap().accounts_made, 1);
    for gateway in &gateways {
        // What another one has written is read with the next change of the file.
        gateway.reload(&world);
        for name in ["a.example", "b.example", "c.example"] {
            assert!(gateway.valid_until(name).is_some(), "{name}");
        }
    }
    world.wait(4 * HOUR).await;
    let renewals = world.orders() - 2;
    assert!((10..=14).contains(&renewals), "{renewals}: each one once in 40 minutes");
}

#[tokio::test(start_paused = true)]
async fn a_restart_requests_nothing() {
    let world = World::new(HOUR);
    let gateway = world.start();
    world.wait(MINUTE).await;
    drop(gateway);
    let before = world.authority.lock().unwrap().requests;
    for _ in 0..5 {
        let gateway = world.start();
        assert!(gateway.valid_until("a.example").is_some());
        world.wait(MINUTE).await;
    }
    // The authority has no renewal information, which the first look has noted.
    assert_eq!(world.authority.lock().unwrap().requests, before);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_crashes_in_each_order_waits_ever_longer() {
    let world = World::new(HOUR);
    world.authority.lock().unwrap().slowness = 1000;
    for _ in 0..60 {
        let gateway = world.start();
        world.wait(10 * SECOND).await;
        drop(gateway);
    }
    assert!((3..=5).contains(&world.orders()), "{} orders in 10 minutes", world.orders());
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_the_names_takes_no_certificate_away() {
    let world = World::new(HOUR);
    let gateway = world.start();
    world.wait(MINUTE).await;
    let until = gateway.valid_until("a.example");
    assert!(until.is_some());

    // The authority is away while a name is added.
    world.fail(Fault::Unreachable);
    world.write("{ acme: [a.example, b.example] }");
    gateway.reload(&world);
    assert_eq!(gateway.valid_until("a.example"), until);
    assert_eq!(gateway.valid_until("b.example"), None);
    world.wait(MINUTE).await;
    assert_eq!(gateway.valid_until("a.example"), until);

    world.fail(Fault::None);
    world.wait(6 * MINUTE).await;
    let both = gateway.valid_until("b.example");
    assert!(both.is_some() && gateway.valid_until("a.example") == both);

    // A name is removed: the certificate with both serves until there is one with the other.
    world.fail(Fault::Unreachable);
    world.write("{ acme: [b.example] }");
    gateway.reload(&world);
    assert_eq!(gateway.valid_until("b.example"), both);
    world.fail(Fault::None);
    world.wait(6 * MINUTE).await;
    assert!(gateway.valid_until("b.example") > both);

    // Without `acme` nothing is renewed.
    let orders = world.orders();
    let plain = "listeners: [{ name: tls, listen: 127.0.0.1:0 }]\nroutes: [{ name: all, match: { path_prefix: / }, respond: { status: 200 } }]\n";
    fs::write(world.file(), plain).unwrap();
    gateway.reload(&world);
    world.wait(3 * HOUR).await;
    assert_eq!(world.orders(), orders);
    assert!(gateway.status.certificates().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_lost_while_the_gateway_runs_is_replaced_without_a_gap() {
    let world = World::new(HOUR);
    let gateway = world.start();
    world.wait(MINUTE).await;
    let until = gateway.valid_until("a.example");
    let file = gateway.live.load().settings.acme.as_ref().unwrap().orders[0].file.clone();

    world.fail(Fault::Unreachable);
    for damage in [|file: &Path| fs::remove_file(file), |file: &Path| fs::write(file, "damaged")] {
        damage(&file).unwrap();
        gateway.reload(&world);
        assert_eq!(gateway.valid_until("a.example"), until);
    }
    world.fail(Fault::None);
    world.wait(6 * MINUTE).await;
    assert!(gateway.valid_until("a.example") > until);
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_has_lost_its_accounts_gets_another_one() {
    let world = World::new(HOUR);
    let gateway = world.start();
    world.wait(MINUTE).await;
    world.authority.lock().unwrap().forget_accounts();
    world.wait_valid(&gateway, 2 * HOUR).await;
    assert_eq!(world.authority.lock().unwrap().accounts_made, 2);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_in_the_window_that_the_authority_suggests() {
    for forgets_replaces in [false, true] {
        let world = World::new(10 * HOUR);
        {
            let mut authority = world.authority.lock().unwrap();
            authority.window = Some([0.2, 0.25]);
            authority.forgets_replaces = forgets_replaces;
        }
        let gateway = world.start();
        world.wait_valid_after_first(&gateway).await;
        world.wait(105 * MINUTE).await;
        assert_eq!(world.orders(), 1, "the window begins after two hours");
        world.wait(HOUR).await;
        let replaced = world.authority.lock().unwrap().replaced();
        assert!(replaced.len() >= 2 && replaced[0].is_none(), "{replaced:?}");
        assert!(replaced[1].as_ref().is_some_and(|id| id.contains('.')), "{replaced:?}");
        assert!(gateway.error("a.example").is_none());

        // One that says `now` again and again is obeyed once in a tenth of the lifetime.
        let before = world.orders();
        world.authority.lock().unwrap().window = Some([0.0, 0.001]);
        world.wait(10 * HOUR).await;
        let renewals = world.orders() - before;
        let most = if forgets_replaces { 22 } else { 11 };
        assert!((8..=most).contains(&renewals), "{renewals}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lifetime_of_a_second_leads_to_four_orders_a_minute() {
    let world = World::new(SECOND);
    let gateway = world.start();
    world.wait(10 * MINUTE).await;
    let orders = world.orders();
    assert!((30..=41).contains(&orders), "{orders} orders in 10 minutes");
    assert_eq!(gateway.status.failed(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_folder_the_authority_is_not_bothered() {
    let world = World::new(HOUR);
    fs::write(world.root.path().join("acme"), "a file in its place").unwrap();
    let gateway = world.start();
    world.wait(HOUR).await;
    assert_eq!(world.authority.lock().unwrap().requests, 0);
    assert_eq!(gateway.valid_until("a.example"), None);
    let error = gateway.error("a.example").unwrap();
    assert!(error.contains("cannot use"), "{error}");

    // What is repaired is used.
    fs::remove_file(world.root.path().join("acme")).unwrap();
    world.wait(MINUTE).await;
    assert!(gateway.valid_until("a.example").is_some());

    // A record that cannot be written shows, before an order, that its certificate would be lost.
    let records = world.root.path().join("acme");
    let mut records =
        fs::read_dir(&records).unwrap().flatten().map(|entry| entry.path().join("records"));
    let records = records.find(|path| path.exists()).unwrap();
    fs::remove_dir_all(&records).unwrap();
    fs::write(&records, "a file in its place").unwrap();
    let before = world.authority.lock().unwrap().requests;
    world.wait(HOUR).await;
    assert_eq!(world.authority.lock().unwrap().requests, before);
}

#[tokio::test(start_paused = true)]
async fn one_order_that_hangs_does_not_hold_up_the_others() {
    let world = World::new(HOUR);
    world.fail(Fault::Pending);
    let gateway = world.start();
    world.wait(10 * SECOND).await;
    world.fail(Fault::Hanging);
    world.wait(SECOND).await;
    world.write("{ acme: [a.example] }, { acme: [b.example] }");
    world.fail(Fault::None);
    gateway.reload(&world);
    world.wait(30 * SECOND).await;
    assert!(gateway.valid_until("b.example").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_challenge_of_another_gateway_is_answered() {
    let world = World::new(HOUR);
    let one = world.start();
    let acme = one.live.load().settings.acme.clone().unwrap();
    let storage = super::storage::Storage::open(&acme.folder).unwrap();
    let _placed = storage.place(ChallengeKind::Http01, "token", "token.print").unwrap();
    let other = super::Challenges::default();
    assert_eq!(other.key_authorization(&acme.folder, "token").await.unwrap(), "token.print");
}

impl World {
    /// Waits for the first certificate.
    async fn wait_valid_after_first(&self, gateway: &Gateway) {
        self.wait(5 * SECOND).await;
        assert!(gateway.valid_until("a.example").is_some());
    }
}
