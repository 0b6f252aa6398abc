//! Settings of the process in the operating system.

use crate::proxy::Descriptors;
use rustix::{
    io,
    process::{Resource, getpriority_process, getrlimit, setpriority_process, setrlimit},
    thread::disable_transparent_huge_pages,
};

/// The control thread's niceness: compiling many routes must not take a core from a worker.
const NICENESS: i32 = 5;

/// Raises the limit of open files to its maximum; returns it.
pub(super) fn raise_file_limit() -> Descriptors {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    Descriptors::new(getrlimit(Resource::Nofile).current)
}

/// Disables large pages. A large page is cleared when it is first touched, which in a virtual
/// machine takes milliseconds; small ones also need less memory. A busy worker's CPU time is the
/// same.
pub fn take_small_pages() {
    // A kernel that cannot disable them has none.
    let _forbidden = disable_transparent_huge_pages(true);
}

/// Lowers the priority of the calling thread and of those that it starts.
pub(super) fn give_way() {
    if let Err(error) = lower_priority() {
        tracing::debug!(%error, "cannot lower the control thread's priority");
    }
}

fn lower_priority() -> io::Result<()> {
    // On Linux no id means the calling thread, and threads have their own priority.
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
