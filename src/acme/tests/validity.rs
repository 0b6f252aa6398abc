//! New certificates that are not valid by the gateway's clock.

use super::*;

const LIFETIME: i64 = 3600;

impl World {
    /// Sets the authority's clock ahead by so many seconds.
    fn set_authority_ahead(&self, seconds: i64) {
        self.authority.lock().unwrap().clock_ahead = seconds;
    }

    /// Waits, and checks each second that clients get a certificate which is valid by the true time.
    async fn wait_valid_from_its_beginning(&self, gateway: &Gateway, time: Duration) {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.wait(SECOND).await;
            let now = self.authority_clock.now();
            let until = gateway.valid_until("a.example").expect("an issued certificate");
            assert!(now < until, "ended at {until:?}, and it is {now:?}");
            let latest = now + HOUR;
            assert!(until <= latest, "its time begins in {:?}", until.since(latest));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_not_valid_is_a_failure_and_changes_nothing() {
    for (ahead, what) in [(-2 * LIFETIME, "ended"), (24 * LIFETIME, "begins tomorrow")] {
        let world = World::new(HOUR);
        let gateway = world.start();
        world.wait_valid_after_first(&gateway).await;
        let until = gateway.valid_until("a.example");

        // It is renewed after 37.5 to 40 minutes.
        world.set_authority_ahead(ahead);
        world.wait_valid_from_its_beginning(&gateway, 48 * MINUTE).await;
        assert_eq!(gateway.valid_until("a.example"), until, "{what}");
        let status = gateway.status.certificates()["a.example"].clone();
        let error = status.error.expect("a failure");
        let words = "a certificate that is not valid now: it is valid from 2";
        assert!(error.contains(words) && error.contains("Z until 2"), "{what}: {error}");
        assert_eq!(status.valid_until, until);
        assert!((3..=6).contains(&status.failures), "{what}: {}", status.failures);
        assert_eq!(gateway.status.failed(), u64::from(status.failures));
        assert_eq!(gateway.status.issued(), 1);
        assert_eq!(world.orders(), 1 + usize::try_from(status.failures).unwrap());

        // Once the authority's clock is right, the next attempt succeeds.
        world.set_authority_ahead(0);
        world.wait_valid_from_its_beginning(&gateway, 7 * MINUTE).await;
        assert!(gateway.valid_until("a.example") > until, "{what}");
        assert_eq!(gateway.error("a.example"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_valid_certificate_one_that_is_not_valid_is_used() {
    for ahead in [-2 * LIFETIME, 24 * LIFETIME] {
        // At first clients get a self-signed one.
        let world = World::new(HOUR);
        world.set_authority_ahead(ahead);
        let gateway = world.start();
        world.wait_valid_after_first(&gateway).await;
        assert_eq!(world.orders(), 1);
        assert_eq!(gateway.error("a.example"), None);

        // Then they get one that has ended.
        let world = World::new(HOUR);
        let gateway = world.start();
        world.wait_valid_after_first(&gateway).await;
        let until = gateway.valid_until("a.example");
        world.fail(Fault::Unreachable);
        world.wait(HOUR).await;
        assert_eq!(gateway.valid_until("a.example"), until);
        world.fail(Fault::None);
        world.set_authority_ahead(ahead);
        world.wait(7 * MINUTE).await;
        assert_ne!(gateway.valid_until("a.example"), until);
        assert_eq!(gateway.error("a.example"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_an_authority_whose_clock_is_a_little_ahead_is_used_when_it_is_valid() {
    let world = World::new(HOUR);
    let gateway = world.start();
    world.wait_valid_after_first(&gateway).await;
    world.set_authority_ahead(90);
    world.wait_valid_from_its_beginning(&gateway, 3 * HOUR).await;
    let orders = world.orders();
    assert!((4..=6).contains(&orders), "{orders} orders in 3 h");
    assert_eq!(gateway.status.failed(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_whose_clock_is_behind_renews_in_time() {
    let world = World::new(HOUR);
    world.clock.set_wall(WallOffset::from_nanos(-20 * 60 * 1_000_000_000));
    let gateway = world.start();
    world.wait_valid_after_first(&gateway).await;
    world.wait_valid(&gateway, 6 * HOUR).await;
    let orders = world.orders();
    assert!((9..=12).contains(&orders), "{orders} orders in 6 h");
    assert_eq!(gateway.status.failed(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_serves_some_of_the_names_is_kept_too() {
    let world = World::new(HOUR);
    let gateway = world.start();
    world.wait_valid_after_first(&gateway).await;
    let until = gateway.valid_until("a.example");
    world.set_authority_ahead(-2 * LIFETIME);

    // The file is lost, and the certificate is only in memory.
    let file = gateway.live.load().settings.acme.as_ref().unwrap().orders[0].file.clone();
    let lost = world.root.path().join("lost");
    fs::rename(&file, &lost).unwrap();
    gateway.reload(&world);
    world.wait(MINUTE).await;
    assert_eq!(gateway.valid_until("a.example"), until);
    assert!(gateway.error("a.example").unwrap().contains("not valid now"));
    fs::rename(&lost, &file).unwrap();

    // A name is added, so that another certificate is ordered.
    world.write("{ acme: [a.example, b.example] }");
    gateway.reload(&world);
    world.wait(MINUTE).await;
    assert_eq!(gateway.valid_until("a.example"), until);
    assert_eq!(gateway.valid_until("b.example"), None);

    world.set_authority_ahead(0);
    world.wait(6 * MINUTE).await;
    assert!(gateway.valid_until("a.example") > until);
    assert_eq!(gateway.valid_until("b.example"), gateway.valid_until("a.example"));
}
