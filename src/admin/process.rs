//! The operating system's data about this process.

use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};
use std::{fs, time::Duration};

/// Data of the process; `None` if it cannot be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident: Option<u64>,
    /// Open file descriptors.
    pub fds: Option<u64>,
    /// The limit of open file descriptors.
    pub fds_max: Option<u64>,
}

impl Process {
    pub(super) fn read() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            cpu: Duration::try_from(cpu).unwrap_or_default(),
            resident: fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident),
            fds: open_fds(),
            fds_max: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Reads `VmRSS:     5120 kB`.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes * 1024)
}

fn open_fds() -> Option<u64> {
    // Since Linux 6.2 the directory's size is the number of descriptors; before, it is zero.
    match fs::metadata("/proc/self/fd").ok()?.len() {
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_files() {
        let process = Process::read();
        assert!(process.resident.unwrap() > 100_000);
        assert!((1..1_000_000).contains(&process.fds.unwrap()));
    }

    #[test]
    fn a_status_without_the_line_has_no_number() {
        let status = "Name:\tflowgate\nVmRSS:\t    5120 kB\nThreads:\t3\n";
        assert_eq!(resident(status), Some(5_242_880));
        assert_eq!(resident("Name:\tflowgate\n"), None);
        assert_eq!(resident("VmRSS:\t5120 MB\n"), None);
    }
}
