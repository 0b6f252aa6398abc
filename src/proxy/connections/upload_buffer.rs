//! What HTTP/2 connections hold of uploads: received, and not yet taken by an upstream.
//!
//! A large window makes an upload fast over a long line, and promises its client as much of
//! the gateway's memory. A window cannot be taken back. So while all connections together hold
//! more than `limits.upload_buffers`, the gateway stops reading those that hold
//! [`ALWAYS_HELD`] or more, and TCP holds their clients back.
//!
//! Worst case: the limit, and [`ALWAYS_HELD`] and one read for each connection. A client of
//! HTTP/2 may always send 64 KiB before it hears anything (RFC 9113, 6.9.2).

use crate::proxy::message::http2_frame::{DATA, HeadReader};
use crate::{clock::Clock, meter::Counters};
use bytes::{Buf, Bytes};
use core::{
    pin::Pin,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Sleep;

/// What a connection may hold whatever the others do, in bytes.
const ALWAYS_HELD: u64 = 64 * 1024;

/// How often a connection that is not read looks whether the others hold less by now.
const RECHECK: Duration = Duration::from_millis(100);

/// What one connection holds. Only its worker writes to it.
#[derive(Debug)]
pub(crate) struct UploadBuffer {
    counters: Arc<Counters>,
    /// What all connections may hold before this one is held back, in bytes.
    limit: u64,
    /// Received, and not yet read from h2. Too high by what h2 dropped unread, until no
    /// body is read any more.
    unread: AtomicU64,
    /// Read, and not yet written to an upstream.
    unsent: AtomicU64,
    bodies: AtomicU32,
    /// The connection's task while it is not read.
    held_back: Mutex<Option<Waker>>,
}

impl UploadBuffer {
    pub(crate) fn new(counters: &Arc<Counters>, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            counters: Arc::clone(counters),
            limit,
            unread: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            bodies: AtomicU32::new(0),
            held_back: Mutex::default(),
        })
    }

    /// What all connections of the process hold.
    fn all(&self) -> &AtomicU64 {
        &self.counters.upload_buffers
    }

    fn held(&self) -> u64 {
        self.unread.load(Relaxed) + self.unsent.load(Relaxed)
    }

    fn is_full(&self) -> bool {
        self.held() >= ALWAYS_HELD && self.all().load(Relaxed) > self.limit
    }

    fn on_received(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Relaxed);
        self.all().fetch_add(bytes, Relaxed);
    }

    /// Notes that `bytes` were read from h2. Returns how many of them are accounted for.
    fn on_read(&self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.unread.load(Relaxed));
        self.unread.fetch_sub(bytes, Relaxed);
        self.unsent.fetch_add(bytes, Relaxed);
        bytes
    }

    fn on_gone(&self, bytes: u64) {
        self.unsent.fetch_sub(bytes, Relaxed);
        self.all().fetch_sub(bytes, Relaxed);
        self.let_go();
    }

    /// Notes that `bytes` were read and passed on.
    pub(crate) fn on_passed(&self, bytes: u64) {
        let held = self.on_read(bytes);
        self.on_gone(held);
    }

    /// Notes that a body is read from now on.
    pub(crate) fn begin_body(&self) {
        self.bodies.fetch_add(1, Relaxed);
    }

    /// Notes that a body is read no more. Nothing that h2 holds unread is left with the last one.
    pub(crate) fn end_body(&self) {
        if self.bodies.fetch_sub(1, Relaxed) == 1 {
            let unread = self.unread.swap(0, Relaxed);
            self.all().fetch_sub(unread, Relaxed);
            self.let_go();
        }
    }

    /// Wraps a part of a body, which counts as held until the returned value is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: Bytes) -> UploadPart {
        let held = self.on_read(bytes.len() as u64);
        UploadPart { bytes, held, connection: Some(Arc::clone(self)) }
    }

    /// Has the connection read again if it may.
    fn let_go(&self) {
        let mut held_back = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        if held_back.is_some() && !self.is_full() {
            held_back.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for UploadBuffer {
    fn drop(&mut self) {
        self.all().fetch_sub(self.held(), Relaxed);
    }
}

/// A part of an upload on its way to the upstream.
#[derive(Debug)]
pub(crate) struct UploadPart {
    bytes: Bytes,
    /// How many bytes count as held.
    held: u64,
    /// In HTTP/2 only: over HTTP/1.1 nothing is received that is not read.
    connection: Option<Arc<UploadBuffer>>,
}

impl UploadPart {
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl From<Bytes> for UploadPart {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, held: 0, connection: None }
    }
}

impl Buf for UploadPart {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for UploadPart {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.on_gone(self.held);
        }
    }
}

/// Follows what an HTTP/2 connection receives, and holds it back.
#[derive(Debug)]
pub(crate) struct Receiver {
    buffer: Arc<UploadBuffer>,
    frames: Frames,
    recheck: Option<Pin<Box<Sleep>>>,
}

impl Receiver {
    pub(crate) fn new(buffer: Arc<UploadBuffer>) -> Self {
        Self { buffer, frames: Frames::default(), recheck: None }
    }

    /// Waits until the connection may be read.
    pub(crate) fn poll_room(&mut self, clock: &Clock, context: &mut Context<'_>) -> Poll<()> {
        while self.buffer.is_full() {
            let timer =
                self.recheck.get_or_insert_with(|| Box::pin(clock.timer(clock.now() + RECHECK)));
            let waker = Some(context.waker().clone());
            *self.buffer.held_back.lock().unwrap_or_else(PoisonError::into_inner) = waker;
            ready!(timer.as_mut().poll(context));
            self.recheck = None;
        }
        self.recheck = None;
        Poll::Ready(())
    }

    /// Notes what was received, the client's preface excepted.
    pub(crate) fn on_received(&mut self, bytes: &[u8]) {
        let data = self.frames.data_in(bytes);
        if data > 0 {
            self.buffer.on_received(data);
        }
    }
}

/// Where in the sequence of frames a stream of bytes stands.
#[derive(Debug, Default)]
struct Frames {
    heads: HeadReader,
    /// How much of the payload is to come.
    left: usize,
    is_data: bool,
}

impl Frames {
    /// Returns how many of the next `bytes` are payload of DATA frames.
    fn data_in(&mut self, mut bytes: &[u8]) -> u64 {
        let mut data = 0;
        while !bytes.is_empty() {
            if self.left == 0 {
                let Some(head) = self.heads.read(&mut bytes) else { break };
                self.left = head.length;
                self.is_data = head.kind == DATA;
            } else {
                let count = bytes.len().min(self.left);
                self.left -= count;
                bytes = &bytes[count..];
                if self.is_data {
                    data += count as u64;
                }
            }
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::message::http2_frame::HEAD;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let size = u32::try_from(length).unwrap().to_be_bytes();
        let mut frame = vec![size[1], size[2], size[3], kind, 0, 0, 0, 0, 1];
        frame.resize(HEAD + length, 7);
        frame
    }

    #[test]
    fn the_payload_of_data_frames_is_counted_however_the_bytes_are_cut() {
        let lengths = [(DATA, 5), (1, 300), (DATA, 0), (8, 4), (DATA, 70_000), (DATA, 1)];
        let bytes: Vec<u8> = lengths.iter().flat_map(|&(kind, size)| frame(kind, size)).collect();
        for size in [1, 2, 8, 9, 10, 1000, bytes.len()] {
            let mut frames = Frames::default();
            let data: u64 = bytes.chunks(size).map(|part| frames.data_in(part)).sum();
            assert_eq!((data, frames.left), (70_006, 0), "{size} at once");
        }
    }

    #[test]
    fn a_connection_is_full_while_it_and_all_together_hold_too_much() {
        let all = Arc::<Counters>::default();
        let [one, other] = [(); 2].map(|()| UploadBuffer::new(&all, 100_000));
        one.begin_body();
        one.on_received(99_000);
        assert!(!one.is_full(), "all hold less than the limit");
        other.on_received(2_000);
        assert!(one.is_full() && !other.is_full());
        let part = one.hold(Bytes::from(vec![0; 50_000]));
        assert!(one.is_full(), "the upstream has yet to take it");
        drop(part);
        assert!(!one.is_full());
        one.end_body();
        assert_eq!(
            (one.held(), all.upload_buffers.load(Relaxed)),
            (0, 2_000),
            "what is not read is gone"
        );
        drop(other);
        assert_eq!(all.upload_buffers.load(Relaxed), 0);
    }

    #[test]
    fn more_than_was_received_is_never_given_back() {
        let all = Arc::<Counters>::default();
        let one = UploadBuffer::new(&all, 0);
        one.begin_body();
        one.begin_body();
        one.on_received(10);
        one.end_body();
        let part = one.hold(Bytes::from_static(b"more than ten bytes"));
        assert_eq!(one.held(), 10);
        one.end_body();
        assert_eq!(all.upload_buffers.load(Relaxed), 10);
        drop(part);
        assert_eq!((one.held(), all.upload_buffers.load(Relaxed)), (0, 0));
    }
}
