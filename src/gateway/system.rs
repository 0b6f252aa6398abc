//! What the process asks of the system for itself.

use crate::proxy::Descriptors;
use rustix::{
    io,
    process::{Resource, getpriority_process, getrlimit, setpriority_process, setrlimit},
    thread::disable_transparent_huge_pages,
};

/// How much the control thread gives way: compiling ten thousand routes must not
/// take a core from a worker.
const NICENESS: i32 = 5;

/// Lets the process have as many connections as it is allowed to; returns how many
/// descriptors that is.
pub(super) fn raise_file_limit() -> Descriptors {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    Descriptors::new(getrlimit(Resource::Nofile).current)
}

/// Has memory come in small pages, of which each is cleared when it is first touched: a large
/// one keeps a worker, or whoever reads a configuration, for milliseconds in a virtual machine
/// whose host must find the memory for it first; and it takes more memory than is used. A busy
/// worker's CPU is the same with either.
pub fn take_small_pages() {
    // A kernel that cannot forbid large ones has none.
    let _forbidden = disable_transparent_huge_pages(true);
}

/// Has the calling thread, and those that it starts, give way to the workers, whatever the
/// priority that they all began with.
pub(super) fn give_way() {
    if let Err(error) = lower_priority() {
        tracing::debug!(%error, "cannot lower the control thread's priority");
    }
}

fn lower_priority() -> io::Result<()> {
    // No id means the calling thread on Linux, whose threads have their own priority.
    setpriority_process(None, getpriority_process(None)? + NICENESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_way_from_where_it_stands() {
        let thread = std::thread::spawn(|| {
            let before = getpriority_process(None).unwrap();
            give_way();
            let once = getpriority_process(None).unwrap();
            give_way();
            (before, once, getpriority_process(None).unwrap())
        });
        let (before, once, twice) = thread.join().unwrap();
        // This is the most that a process can give way.
        let least = |priority: i32| priority.min(19);
        assert_eq!((once, twice), (least(before + NICENESS), least(before + 2 * NICENESS)));
    }
}
