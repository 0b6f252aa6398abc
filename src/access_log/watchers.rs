//! Which lines are wanted: by the log's output, and by clients that watch requests.
//!
//! Each watcher has a queue of bounded size, into which workers copy their lines. A worker never waits:
//! a line that finds no room is counted.

use arc_swap::ArcSwap;
use std::sync::{
    Arc,
    atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
    mpsc::{Receiver, SyncSender, sync_channel},
};

/// How many watchers there are at most.
pub(super) const MOST: usize = 4;

/// Lines that wait for one watcher.
const LINES: usize = 16 * 1024;

/// Bytes of lines that wait for one watcher.
const BYTES: usize = 4 * 1024 * 1024;

/// Bit 0 of `wanted`: lines are written to the output.
const WRITTEN: usize = 1;

/// Each watcher adds this to `wanted`.
const WATCHER: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// All that a request looks at if nothing is wanted.
    wanted: AtomicUsize,
    queues: ArcSwap<Vec<Arc<Queue>>>,
}

/// A line, which all queues share.
pub(super) type Line = Arc<[u8]>;

/// The lines that wait for one watcher.
#[derive(Debug)]
pub(super) struct Queue {
    sender: SyncSender<Line>,
    bytes: AtomicUsize,
    lost: AtomicU64,
}

impl Watchers {
    pub(super) fn new(is_written: bool) -> Self {
        let watchers = Self::default();
        watchers.set_written(is_written);
        watchers
    }

    pub(super) fn set_written(&self, is_written: bool) {
        if is_written {
            self.wanted.fetch_or(WRITTEN, Relaxed);
        } else {
            self.wanted.fetch_and(!WRITTEN, Relaxed);
        }
    }

    /// Whether anything wants lines.
    pub(super) fn want_lines(&self) -> bool {
        self.wanted.load(Relaxed) > 0
    }

    pub(super) fn is_written(&self) -> bool {
        self.wanted.load(Relaxed) & WRITTEN > 0
    }

    pub(super) fn is_watched(&self) -> bool {
        self.wanted.load(Relaxed) >= WATCHER
    }

    /// Adds a queue; `None` if there are [`MOST`].
    pub(super) fn add(&self) -> Option<(Arc<Queue>, Receiver<Line>)> {
        let joined = |wanted: usize| (wanted / WATCHER < MOST).then_some(wanted + WATCHER);
        self.wanted.fetch_update(AcqRel, Acquire, joined).ok()?;
        let (sender, lines) = sync_channel(LINES);
        let queue = Arc::new(Queue { sender, bytes: AtomicUsize::new(0), lost: AtomicU64::new(0) });
        self.queues.rcu(|queues| [&queues[..], &[Arc::clone(&queue)]].concat());
        Some((queue, lines))
    }

    /// Removes a queue that was added.
    pub(super) fn remove(&self, queue: &Arc<Queue>) {
        let is_other = |other: &&Arc<Queue>| !Arc::ptr_eq(other, queue);
        self.queues.rcu(|queues| queues.iter().filter(is_other).cloned().collect::<Vec<_>>());
        self.wanted.fetch_sub(WATCHER, AcqRel);
    }

    /// Puts a line into every queue.
    pub(super) fn send(&self, line: &[u8]) {
        let line = Line::from(line);
        for queue in self.queues.load().iter() {
            queue.push(&line);
        }
    }
}

impl Queue {
    fn push(&self, line: &Line) {
        let length = line.len();
        let has_room = self.bytes.fetch_add(length, Relaxed) + length <= BYTES;
        if !has_room || self.sender.try_send(Arc::clone(line)).is_err() {
            self.bytes.fetch_sub(length, Relaxed);
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Notes that a line was taken out.
    pub(super) fn taken(&self, line: &[u8]) {
        self.bytes.fetch_sub(line.len(), Relaxed);
    }

    /// Returns how many lines found no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{iter, thread};

    #[test]
    fn nothing_is_wanted_until_something_is_written_or_watched() {
        let watchers = Watchers::new(false);
        assert!(!watchers.want_lines());
        let (queue, _lines) = watchers.add().unwrap();
        assert!(watchers.want_lines() && watchers.is_watched() && !watchers.is_written());
        watchers.set_written(true);
        watchers.remove(&queue);
        assert!(watchers.want_lines() && !watchers.is_watched() && watchers.is_written());
        watchers.set_written(false);
        assert!(!watchers.want_lines());
    }

    #[test]
    fn watchers_are_few_and_one_that_leaves_makes_room() {
        let watchers = Watchers::default();
        let mut all: Vec<_> = iter::from_fn(|| watchers.add()).take(100).collect();
        assert_eq!(all.len(), MOST);
        watchers.remove(&all.pop().unwrap().0);
        assert!(watchers.add().is_some() && watchers.add().is_none());
    }

    #[test]
    fn a_queue_holds_so_many_bytes_and_lines_and_counts_the_others() {
        for length in [1, 100, BYTES / 3, BYTES, BYTES + 1] {
            let watchers = Watchers::default();
            let (queue, lines) = watchers.add().unwrap();
            let line = vec![b'x'; length];
            let sent = (BYTES / length + 10).min(2 * LINES);
            (0..sent).for_each(|_| watchers.send(&line));
            let fits = (BYTES / length).min(LINES);
            assert_eq!(queue.lost(), (sent - fits) as u64, "{length}");
            let taken = lines.try_iter().inspect(|line| queue.taken(line)).count();
            assert_eq!(taken, fits, "{length}");
            // There is room again.
            watchers.send(b"y");
            assert_eq!(lines.try_iter().count(), 1);
        }
    }

    #[test]
    fn every_line_of_every_thread_is_in_each_queue_or_counted() {
        let watchers = Watchers::default();
        let (slow, unread) = watchers.add().unwrap();
        let (fast, read) = watchers.add().unwrap();
        let mut taken = 0;
        thread::scope(|scope| {
            let send = |_| watchers.send(b"0123456789");
            let threads: Vec<_> =
                (0..2).map(|_| scope.spawn(move || (0..20_000).for_each(send))).collect();
            while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                taken += read.try_iter().inspect(|line| fast.taken(line)).count() as u64;
            }
        });
        taken += read.try_iter().count() as u64;
        assert_eq!(taken + fast.lost(), 40_000);
        assert_eq!(unread.try_iter().count(), LINES);
        assert_eq!(slow.lost(), 40_000 - LINES as u64);
    }
}
