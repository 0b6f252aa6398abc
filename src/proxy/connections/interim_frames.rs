//! Interim responses (1xx) on their way to a client of HTTP/2.
//!
//! hyper cannot send them. So they are written as frames between those of hyper, which needs the id of
//! a request's stream. hyper does not report it either, but hands requests over in the order in which
//! their streams were opened. If one of a connection is not handed over, as the h2 crate rejects it,
//! that order is lost, and the connection gets no interim responses any more.

use crate::proxy::message::{
    http2_frame::{END_HEADERS, HEADERS},
    response::Response,
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use http::HeaderMap;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The largest header that is sent: a frame's size that every client takes (RFC 9113, 6.5.2).
const BLOCK_MAX: usize = 16_384;

/// How much may wait to be written. Further responses are dropped: they are hints.
const WAITING_MAX: usize = 64 * 1024;

/// The index of `:status` in HPACK's static table (RFC 7541, appendix A).
const STATUS: u8 = 8;

/// Those of one connection.
#[derive(Debug, Default)]
pub(crate) struct InterimFrames {
    state: Mutex<State>,
    /// Whether there is something to write.
    is_there: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Streams whose requests were not handed over yet, in their order.
    opened: VecDeque<u32>,
    /// Whether it is not known which request a stream has.
    is_off: bool,
    /// Whole frames to write.
    frames: Vec<u8>,
}

impl InterimFrames {
    /// Notes that the client has opened a stream.
    pub(crate) fn on_opened(&self, stream: u32) {
        let mut state = self.lock();
        if !state.is_off {
            state.opened.push_back(stream);
        }
    }

    /// Returns the stream of the request that is handed over; 0: it is not known.
    pub(crate) fn next_opened(&self) -> u32 {
        self.lock().opened.pop_front().unwrap_or(0)
    }

    /// Notes that all requests that have come were handed over.
    pub(crate) fn settle(&self) {
        let mut state = self.lock();
        if !state.opened.is_empty() {
            state.turn_off();
        }
    }

    /// Sends no more interim responses on the connection.
    pub(crate) fn turn_off(&self) {
        self.lock().turn_off();
    }

    /// Has a response written on this stream, before anything else. Returns whether it is.
    pub(crate) fn push(&self, stream: u32, response: Response<()>) -> bool {
        let response = response.into_http();
        let block = block(response.status().as_str(), response.headers());
        let mut state = self.lock();
        if state.is_off
            || stream == 0
            || block.len() > BLOCK_MAX
            || state.frames.len() + block.len() > WAITING_MAX
        {
            return false;
        }
        let length = u32::try_from(block.len()).unwrap_or_default().to_be_bytes();
        state.frames.extend_from_slice(&[length[1], length[2], length[3], HEADERS, END_HEADERS]);
        state.frames.extend_from_slice(&stream.to_be_bytes());
        state.frames.extend_from_slice(&block);
        self.is_there.store(true, Relaxed);
        true
    }

    /// Whether there is something to write.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Relaxed)
    }

    /// Takes what is to be written.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.is_there.store(false, Relaxed);
        core::mem::take(&mut self.lock().frames)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn turn_off(&mut self) {
        self.is_off = true;
        self.opened.clear();
        self.frames.clear();
    }
}

/// Encodes a header so that the client's table does not change (RFC 7541, 6.2.2): hyper's encoder
/// knows nothing of it.
fn block(status: &str, fields: &HeaderMap) -> Vec<u8> {
    let mut block = vec![STATUS];
    write_text(&mut block, status.as_bytes());
    for (name, value) in fields {
        block.push(0);
        write_text(&mut block, name.as_str().as_bytes());
        write_text(&mut block, value.as_bytes());
    }
    block
}

/// Writes a text without Huffman's code (RFC 7541, 5.2), behind its length in 7 bits or more (5.1).
pub(crate) fn write_text(block: &mut Vec<u8>, text: &[u8]) {
    const MOST: usize = 0x7f;
    if text.len() < MOST {
        block.push(u8::try_from(text.len()).unwrap_or_default());
    } else {
        block.push(0x7f);
        let mut left = text.len() - MOST;
        while left >= 0x80 {
            block.push(u8::try_from(left & 0x7f).unwrap_or_default() | 0x80);
            left >>= 7;
        }
        block.push(u8::try_from(left).unwrap_or_default());
    }
    block.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(link: &str) -> Response<()> {
        http::Response::builder().status(103).header("link", link).body(()).expect("whole").into()
    }

    #[test]
    fn a_response_is_a_frame_that_changes_no_table() {
        let frames = InterimFrames::default();
        frames.on_opened(5);
        assert!(frames.push(frames.next_opened(), hint("</a>")));
        assert!(frames.is_there());
        let block = b"\x08\x03103\x00\x04link\x04</a>";
        let head = [0, 0, 16, HEADERS, END_HEADERS, 0, 0, 0, 5];
        assert_eq!(frames.take(), [&head[..], block].concat());
        assert!(!frames.is_there());
        let mut text = Vec::new();
        write_text(&mut text, &[b'x'; 127]);
        write_text(&mut text, &[b'x'; 1337 + 127]);
        assert_eq!(
            (text[..2].to_vec(), text[129..132].to_vec()),
            (vec![127, 0], vec![127, 185, 10])
        );
    }

    #[test]
    fn a_connection_whose_order_is_lost_gets_none() {
        let frames = InterimFrames::default();
        frames.on_opened(1);
        frames.on_opened(3);
        let first = frames.next_opened();
        assert!(frames.push(first, hint("</a>")));
        // The other one was rejected.
        frames.settle();
        assert!(frames.take().is_empty() && !frames.push(first, hint("</a>")));
        frames.on_opened(5);
        assert_eq!(frames.next_opened(), 0);
    }

    #[test]
    fn what_waits_is_bounded() {
        let frames = InterimFrames::default();
        assert!(!frames.push(0, hint("</a>")), "a stream that is not known");
        assert!(!frames.push(1, hint(&"x".repeat(BLOCK_MAX))));
        let sent = (0..100).filter(|_| frames.push(1, hint(&"x".repeat(8_000)))).count();
        assert_eq!(sent, 8);
    }
}
