//! Steps of the wall clock.

use super::reload::catch_up;
use crate::{
    clock::{Clock, Reading, Step, WallWatch},
    config::Live,
    meter::Counters,
    preview::Previews,
};
use std::sync::{Arc, atomic::Ordering::Relaxed};
use tokio::sync::watch::Receiver;

/// The parts that follow the wall clock.
pub(super) struct Followers {
    pub(super) clock: Clock,
    pub(super) live: Arc<Live>,
    pub(super) previews: Arc<Previews>,
    pub(super) counters: Arc<Counters>,
}

/// Applies every step that `watch` finds to `followers`, whose rules may go by the wall clock. While
/// `upgrading` is true, the rules wait for a step: they are being exported.
pub(super) async fn follow<R: FnMut() -> Reading>(
    mut watch: WallWatch<R>,
    mut upgrading: Receiver<bool>,
    followers: Followers,
) {
    loop {
        let step = watch.stepped().await;
        followers.apply(step);
        // Without a sender the gateway ends, and exports nothing.
        drop(upgrading.wait_for(|is_upgrading| !is_upgrading).await);
        followers.apply_to_rules(step);
        catch_up(followers.live.load_full()).await;
    }
}

impl Followers {
    fn apply(&self, step: Step) {
        self.clock.set_wall(step.wall);
        self.counters.clock_steps.fetch_add(1, Relaxed);
        tracing::warn!(
            by = %step.words(),
            "the wall clock was set, or the machine slept: windows of the clock and the calendar \
             follow, other limits are not disturbed"
        );
    }

    fn apply_to_rules(&self, step: Step) {
        self.live.set_wall(step.wall, self.clock.now());
        self.previews.set_wall(step.wall, self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config,
        flow::{Claim, Key, WallOffset},
    };
    use core::time::Duration;
    use std::sync::atomic::AtomicI64;

    const DAY: i64 = 24 * 3600 * 1_000_000_000;

    /// Returns how many of nine requests pass on each route, for one client.
    fn passed(live: &Live, clock: &Clock) -> Vec<usize> {
        let ask = |route: &Arc<config::Route>| {
            let claim = |rule: &config::RouteRule| Claim {
                slot: rule.slot,
                key: Key::Of(7),
                cost: 1,
                patience: Duration::ZERO,
                plan: None,
            };
            let claims: Vec<Claim> = route.rules.iter().map(claim).collect();
            (0..9).filter(|_| route.gate.enter(clock.now(), &claims).is_ok()).count()
        };
        live.load().routes.iter().map(ask).collect()
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::too_many_lines, reason = "one timeline")]
    async fn a_daily_limit_is_new_two_days_later_and_a_bucket_knows_nothing_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        let route = |name: &str, rule: &str| {
            format!(
                "  - {{ name: {name}, match: {{ path: /{name} }}, upstream: app, flow: [{{ name: r, {rule} }}] }}\n"
            )
        };
        let text = format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\nupstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}]\nroutes:\n{}{}{}",
            route("all", "algorithm: fixed_window, limit: 2/day, tz: Europe/Berlin"),
            route("each", "algorithm: fixed_window, limit: 3/1d, key: client_ip"),
            route("bucket", "algorithm: token_bucket, limit: 4/1h, burst: 4"),
        );
        let plan = |text: &str| {
            std::fs::write(&path, text).unwrap();
            config::read(&path).unwrap_or_else(|problems| panic!("{problems}"))
        };
        let clock = Clock::start();
        let live = Arc::new(Live::start(plan(&text), clock.now()));
        let offset = Arc::new(AtomicI64::new(0));
        let counters = Arc::<Counters>::default();
        let system = clock.clone();
        let shown = Arc::clone(&offset);
        let watch = WallWatch::new(move || {
            let now = system.now();
            let wall = WallOffset::from_nanos(shown.load(Relaxed)).at(now);
            Reading { before: now, wall, after: now }
        });
        let (upgrading, receiver) = tokio::sync::watch::channel(false);
        let task = tokio::spawn(follow(
            watch,
            receiver,
            Followers {
                clock: clock.clone(),
                live: live.clone(),
                previews: Arc::default(),
                counters: counters.clone(),
            },
        ));
        let steps = || counters.clock_steps.load(Relaxed);
        // Whatever the time is, it is noon of a day in 2026 then.
        let noon = i64::try_from(clock.now().as_nanos()).unwrap() - 1_795_262_400_000_000_000;
        offset.store(-noon, Relaxed);
        clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
        assert_eq!((passed(&live, &clock), steps()), (vec![2, 3, 4], 1));
        clock.sleep_until(clock.now() + Duration::from_secs(2)).await;
        assert_eq!((passed(&live, &clock), steps()), (vec![0, 0, 0], 1));
        let before = clock.wall_now();
        offset.store(2 * DAY - noon, Relaxed);
        clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
        assert_eq!((passed(&live, &clock), steps()), (vec![2, 3, 0], 2));
        let since = clock.wall_now().since(before);
        assert_eq!(since, Duration::from_hours(48) + Duration::from_secs(1), "for the log");
        // A route that an edit adds counts by the clock as it is now.
        let more = text.clone() + &route("new", "algorithm: fixed_window, limit: 1/1d");
        live.apply(plan(&more), clock.now(), &mut config::Retired::default());
        assert_eq!(passed(&live, &clock), [0, 0, 0, 1]);
        // During an upgrade nothing may edit the gates: they are being exported.
        upgrading.send_replace(true);
        offset.store(3 * DAY - noon, Relaxed);
        clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
        assert_eq!((passed(&live, &clock), steps()), (vec![0, 0, 0, 0], 3));
        upgrading.send_replace(false);
        clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
        assert_eq!((passed(&live, &clock), steps()), (vec![2, 3, 0, 1], 3));
        task.abort();
    }
}
