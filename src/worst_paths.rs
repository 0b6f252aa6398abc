//! The paths whose requests fail or are slow, of the last two minutes.
//!
//! Only a failed or slow request is recorded, when it ends. Each worker counts its own, in a table
//! of fixed size for which no request waits: while it is read, a request is left out. Where more
//! paths come than a table has room for, the frequent ones stay (the Space-Saving algorithm:
//! Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
//! Streams", 2005).
//!
//! Paths may contain names and secrets of clients, such as `/reset/TOKEN`. So [`PathShape`] keeps
//! only the segments that look like words of the service. This also counts the paths together that
//! differ in an identifier.

use crate::flow::Instant;
use core::{fmt, time::Duration};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, TryLockError},
};

/// A response whose header takes so long is slow.
pub const SLOW: Duration = Duration::from_secs(1);

/// The most paths that are listed, of each kind.
pub const LISTED: usize = 10;

/// The paths that a worker counts in a minute, of each kind.
const COUNTED: usize = 100;

/// The counts of a minute are dropped when the next minute is over.
const MINUTE: Duration = Duration::from_mins(1);

/// The bytes that are kept of a path.
const LONGEST: usize = 120;

/// The bytes of a segment that is shown, and of a word in it. Few names of resources are longer, and most
/// secrets are.
const LONGEST_SEGMENT: usize = 40;
const LONGEST_WORD: usize = 20;

/// The digits that a word may end in, as in `v1` and `oauth2`.
const MOST_DIGITS: usize = 2;

/// The worst paths of all workers.
#[derive(Debug, Default)]
pub struct WorstPaths {
    workers: Mutex<Vec<Arc<Mutex<Minutes>>>>,
}

/// Records requests of one worker.
#[derive(Debug)]
pub struct PathRecorder(Arc<Mutex<Minutes>>);

/// A path without its query. Each segment that may be an identifier or a secret is replaced by `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathShape(Box<str>);

/// A request that failed or was slow.
#[derive(Clone, Copy, Debug)]
pub struct BadEnd {
    /// The status of its response; 499 if the client left before.
    pub status: u16,
    /// Whether it was admitted and got a status of 500 to 599.
    pub is_failed: bool,
    /// From its arrival to the header of its response, or to its end if there was none. The time of its
    /// upload does not count.
    pub duration: Duration,
}

/// The worst paths, the most frequent first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathList {
    /// Those with failed requests.
    pub failed: Vec<ListedPath>,
    /// Those with slow responses.
    pub slow: Vec<ListedPath>,
}

/// A path and its requests of the last two minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedPath {
    /// Its route.
    pub route: String,
    /// The path, as [`PathShape`] writes it.
    pub path: String,
    /// The number of failed or slow requests; never too low.
    pub count: u64,
    /// By how much the number may be too high.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overcount: u64,
    /// The status of the latest of them.
    pub status: u16,
    /// The longest time from an arrival to the header of its response, in milliseconds.
    pub longest_ms: u64,
}

/// The counts of this minute and of the one before.
#[derive(Debug)]
struct Minutes {
    began: Instant,
    current: Kinds,
    last: Kinds,
}

#[derive(Debug, Default)]
struct Kinds {
    failed: Table,
    slow: Table,
}

/// At most [`COUNTED`] paths.
#[derive(Debug, Default)]
struct Table(Vec<Row>);

#[derive(Clone, Debug)]
struct Row {
    route: Arc<str>,
    path: PathShape,
    count: u64,
    /// The count of the row that this one replaced: it may have been the path's own.
    overcount: u64,
    status: u16,
    longest: Duration,
}

impl WorstPaths {
    /// Returns a recorder for one more worker.
    pub fn recorder(&self) -> PathRecorder {
        let minutes = Arc::<Mutex<Minutes>>::default();
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&minutes));
        PathRecorder(minutes)
    }

    /// Returns the worst paths at `now`.
    pub fn list(&self, now: Instant) -> PathList {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut failed = Vec::new();
        let mut slow = Vec::new();
        for worker in workers {
            let mut minutes = worker.lock().unwrap_or_else(PoisonError::into_inner);
            minutes.turn(now);
            for kinds in [&minutes.last, &minutes.current] {
                failed.extend_from_slice(&kinds.failed.0);
                slow.extend_from_slice(&kinds.slow.0);
            }
        }
        PathList { failed: listed(failed), slow: listed(slow) }
    }
}

impl PathRecorder {
    /// Records the end of a request of `route`.
    pub fn record(&self, route: &Arc<str>, path: &PathShape, end: &BadEnd, now: Instant) {
        let mut minutes = match self.0.try_lock() {
            Ok(minutes) => minutes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        minutes.turn(now);

        let Kinds { failed, slow } = &mut minutes.current;
        if end.duration >= SLOW {
            slow.count(route, path, end);
        }
        if end.is_failed {
            failed.count(route, path, end);
        }
    }
}

impl PathShape {
    /// Returns the shape of a path, cut after 120 bytes.
    pub fn of(path: &str) -> Self {
        let mut shape = String::with_capacity(path.len().min(LONGEST));
        for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
            let segment = if is_of_service(segment) { segment } else { "*" };
            if shape.len() + 1 + segment.len() > LONGEST {
                shape.push('…');
                break;
            }
            shape.push('/');
            shape.push_str(segment);
        }
        Self(shape.into_boxed_str())
    }
}

impl fmt::Display for PathShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True if a segment consists of words, so that it names a part of the service.
fn is_of_service(segment: &str) -> bool {
    let is_word = |word: &str| {
        let letters = word.trim_end_matches(|end: char| end.is_ascii_digit());
        word.len() <= LONGEST_WORD
            && word.len() - letters.len() <= MOST_DIGITS
            && letters.bytes().all(|letter| letter.is_ascii_alphabetic())
            && (word.is_empty() || !letters.is_empty())
    };
    segment.len() <= LONGEST_SEGMENT && segment.split(['.', '-', '_']).all(is_word)
}

impl Default for Minutes {
    fn default() -> Self {
        Self { began: Instant::EPOCH, current: Kinds::default(), last: Kinds::default() }
    }
}

impl Minutes {
    /// Begins another minute if this one is over.
    fn turn(&mut self, now: Instant) {
        let passed = now.since(self.began);
        if passed < MINUTE {
            return;
        }
        let current = core::mem::take(&mut self.current);
        self.last = if passed < MINUTE * 2 { current } else { Kinds::default() };
        self.began = now;
    }
}

impl Table {
    fn count(&mut self, route: &Arc<str>, path: &PathShape, end: &BadEnd) {
        let known = self.0.iter_mut().find(|row| row.path == *path && row.route == *route);
        if let Some(row) = known {
            row.count += 1;
            row.status = end.status;
            row.longest = row.longest.max(end.duration);
            return;
        }

        let mut row = Row {
            route: Arc::clone(route),
            path: path.clone(),
            count: 1,
            overcount: 0,
            status: end.status,
            longest: end.duration,
        };
        if self.0.len() < COUNTED {
            self.0.push(row);
        } else if let Some(least) = self.0.iter_mut().min_by_key(|row| row.count) {
            row.count += least.count;
            row.overcount = least.count;
            *least = row;
        }
    }
}

/// Joins the rows of one path, and returns the paths with the highest counts.
fn listed(rows: Vec<Row>) -> Vec<ListedPath> {
    let mut joined: HashMap<(Arc<str>, PathShape), Row> = HashMap::new();
    for row in rows {
        let key = (Arc::clone(&row.route), row.path.clone());
        let Some(known) = joined.get_mut(&key) else {
            joined.insert(key, row);
            continue;
        };
        known.count += row.count;
        known.overcount += row.overcount;
        known.status = row.status;
        known.longest = known.longest.max(row.longest);
    }

    let mut rows: Vec<Row> = joined.into_values().collect();
    // Of equal counts, those that are certainly so frequent come first; the rest keeps rows from moving.
    rows.sort_by(|a, b| {
        let rank = |row: &Row| (Reverse(row.count), row.overcount);
        let names = || (&a.route, &a.path).cmp(&(&b.route, &b.path));
        rank(a).cmp(&rank(b)).then_with(names)
    });
    let shown = rows.into_iter().take(LISTED).map(|row| ListedPath {
        route: row.route.to_string(),
        path: row.path.to_string(),
        count: row.count,
        overcount: row.overcount,
        status: row.status,
        longest_ms: u64::try_from(row.longest.as_millis()).unwrap_or(u64::MAX),
    });
    shown.collect()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const FAILED: BadEnd = BadEnd { status: 500, is_failed: true, duration: Duration::ZERO };

    fn path(text: &str) -> PathShape {
        PathShape::of(text)
    }

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(1000 + seconds)
    }

    /// Returns a path of its own for each number.
    fn letters(number: u32) -> String {
        let digit =
            |digit: char| char::from(b'a' + u8::try_from(digit.to_digit(10).unwrap()).unwrap());
        format!("/{}", number.to_string().chars().map(digit).collect::<String>())
    }

    /// Returns the paths and counts of a list.
    fn counts(list: &[ListedPath]) -> Vec<(&str, u64)> {
        list.iter().map(|listed| (&*listed.path, listed.count)).collect()
    }

    #[test]
    fn failed_and_slow_paths_are_listed_with_the_most_frequent_first() {
        let worst = WorstPaths::default();
        let workers = [worst.recorder(), worst.recorder()];
        let route = Arc::from("shop");
        let slow = BadEnd { status: 200, is_failed: false, duration: Duration::from_millis(1500) };
        for turn in 0..5 {
            workers[turn % 2].record(&route, &path("/a"), &FAILED, at(0));
        }
        workers[0].record(&route, &path("/b"), &FAILED, at(0));
        workers[1].record(&route, &path("/c"), &slow, at(1));
        let late = BadEnd { status: 504, is_failed: true, duration: Duration::from_secs(3) };
        workers[1].record(&route, &path("/c"), &late, at(1));

        let list = worst.list(at(2));
        assert_eq!(counts(&list.failed), [("/a", 5), ("/b", 1), ("/c", 1)]);
        assert_eq!(counts(&list.slow), [("/c", 2)]);
        assert_eq!((list.slow[0].status, list.slow[0].longest_ms), (504, 3000));
    }

    #[test]
    fn a_quick_success_is_not_listed() {
        let worst = WorstPaths::default();
        let quick = BadEnd { status: 200, is_failed: false, duration: Duration::from_millis(999) };
        worst.recorder().record(&Arc::from("shop"), &path("/a"), &quick, at(0));
        assert_eq!(worst.list(at(0)), PathList::default());
    }

    #[test]
    fn equal_paths_of_two_routes_are_listed_apart() {
        let worst = WorstPaths::default();
        let recorder = worst.recorder();
        for route in ["a", "b"] {
            recorder.record(&Arc::from(route), &path("/"), &FAILED, at(0));
        }
        let list = worst.list(at(0));
        let routes: Vec<&str> = list.failed.iter().map(|listed| &*listed.route).collect();
        assert_eq!(routes, ["a", "b"]);
    }

    #[test]
    fn counts_are_dropped_after_one_to_two_minutes() {
        let worst = WorstPaths::default();
        let recorder = worst.recorder();
        recorder.record(&Arc::from("shop"), &path("/a"), &FAILED, at(0));
        recorder.record(&Arc::from("shop"), &path("/a"), &FAILED, at(61));
        assert_eq!(counts(&worst.list(at(62)).failed), [("/a", 2)]);
        assert_eq!(counts(&worst.list(at(122)).failed), [("/a", 1)]);
        assert_eq!(counts(&worst.list(at(1000)).failed), []);
    }

    #[test]
    fn a_path_shows_the_words_of_the_service_and_no_identifiers() {
        for (received, shown) in [
            ("/", "/"),
            ("/api/pay", "/api/pay"),
            ("/api/v1/orders/", "/api/v1/orders/"),
            ("/shop.v12.Cart/GetItems", "/shop.v12.Cart/GetItems"),
            ("/static/main-page_2.js", "/static/*"),
            ("/.well-known/openid-configuration", "/.well-known/openid-configuration"),
            ("/orders/17/items/3", "/orders/*/items/*"),
            ("/orders/o-1234", "/orders/*"),
            ("/reset/8f1cA0e2d3", "/reset/*"),
            ("/users/bob@example.com", "/users/*"),
            ("/files/a%20b", "/files/*"),
            ("/s/abcdefghijklmnopqrstu", "/s/*"),
            ("/é", "/*"),
            ("*", "/*"),
            ("", "/"),
        ] {
            assert_eq!(path(received).to_string(), shown, "{received}");
        }
    }

    #[test]
    fn a_long_path_is_cut_between_segments() {
        let text = path(&"/segment".repeat(100)).to_string();
        assert_eq!(text, format!("{}…", "/segment".repeat(LONGEST / "/segment".len())));
    }

    proptest! {
        /// The oracle counts every path. A frequent path is always in the table, and no count is too
        /// low, or too high by more than `overcount`.
        #[test]
        fn a_table_keeps_the_frequent_paths_with_bounded_error(
            drawn in proptest::collection::vec(prop_oneof![0_u32..4, 0_u32..1000], 0..3000)
        ) {
            let worst = WorstPaths::default();
            let recorder = worst.recorder();
            let mut exact: BTreeMap<String, u64> = BTreeMap::new();
            for number in &drawn {
                let text = letters(*number);
                recorder.record(&Arc::from("shop"), &path(&text), &FAILED, at(0));
                *exact.entry(text).or_default() += 1;
            }

            let minutes = recorder.0.lock().unwrap();
            let rows = &minutes.current.failed.0;
            prop_assert!(rows.len() <= COUNTED);
            for row in rows {
                let count = exact[&row.path.to_string()];
                prop_assert!(row.count >= count && row.count - row.overcount <= count);
            }
            let frequent = exact.iter().filter(|(_, count)| **count > drawn.len() as u64 / COUNTED as u64);
            for (text, _) in frequent {
                prop_assert!(rows.iter().any(|row| row.path.to_string() == *text), "{text} is missing");
            }
        }
    }
}
