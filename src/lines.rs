//! Writes the lines of a log, on a thread that may block.

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, write},
};
use std::{io, os::fd::AsFd};

/// Lines that were not written, or only in part.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) lines: usize,
    pub(crate) error: io::Error,
}

impl Lost {
    /// Counts `lines`; the last may lack its end.
    pub(crate) fn of(lines: &[u8], error: io::Error) -> Self {
        Self { lines: count(lines), error }
    }
}

/// Counts lines; the last may lack its end.
pub(crate) fn count(lines: &[u8]) -> usize {
    lines.split_inclusive(|byte| *byte == b'\n').count()
}

/// Writes `lines`, and blocks until the reader takes them. Standard output and error may be
/// non-blocking, because another process that shares them set that; then this waits with `poll`.
///
/// # Errors
///
/// The rest cannot be written: the reader is gone, or the disk is full.
pub(crate) fn write_out(output: impl AsFd, lines: &[u8]) -> Result<(), Lost> {
    let mut rest = lines;
    while !rest.is_empty() {
        let written = match write(&output, rest) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Err(Errno::AGAIN) => wait_until_writable(&output).map(|()| 0),
            written => written.map_err(io::Error::from),
        };
        match written {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Lost::of(rest, error)),
        }
    }
    Ok(())
}

fn wait_until_writable(output: &impl AsFd) -> io::Result<()> {
    poll(&mut [PollFd::new(output, PollFlags::OUT)], None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::{
        io::{PipeReader, PipeWriter, Read, pipe},
        thread,
    };

    const LINE: &[u8] = b"0123456\n";
    /// More than pipes hold.
    const LINES: usize = 1024 * 1024;

    fn nonblocking_pipe() -> (PipeReader, PipeWriter) {
        let (reader, writer) = pipe().unwrap();
        fcntl_setfl(&writer, fcntl_getfl(&writer).unwrap() | OFlags::NONBLOCK).unwrap();
        (reader, writer)
    }

    #[test]
    fn a_full_nonblocking_pipe_is_waited_for() {
        let (mut reader, writer) = nonblocking_pipe();
        let writing = thread::spawn(move || write_out(&writer, &LINE.repeat(LINES)));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writing.join().unwrap().unwrap();
        assert!(read == LINE.repeat(LINES));
    }

    #[test]
    fn what_was_written_before_it_failed_is_not_lost() {
        let (mut reader, writer) = nonblocking_pipe();
        let writing = thread::spawn(move || write_out(&writer, &LINE.repeat(LINES)));
        reader.read_exact(&mut vec![0; LINE.len() * LINES / 2]).unwrap();
        drop(reader);
        let lost = writing.join().unwrap().unwrap_err();
        assert_eq!(lost.error.kind(), io::ErrorKind::BrokenPipe);
        assert!((1..=LINES / 2).contains(&lost.lines), "{lost:?}");
    }

    #[test]
    fn a_half_line_counts_as_lost() {
        assert_eq!(Lost::of(b"345\n678\n9", io::ErrorKind::BrokenPipe.into()).lines, 3);
    }
}
