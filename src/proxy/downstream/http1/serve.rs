//! The requests of a busy connection, one after the other.

use super::{
    current_request::CurrentRequest,
    head::HeadWait,
    relay::Relayed,
    response::{self, write_own},
    session::Session,
};
use crate::proxy::{
    completion::Completion,
    downstream::unreadable::UnreadableRequest,
    io::{client_io::ClientIo, input::Input, prefixed::Prefixed},
    message::response::ResponseHead,
    request::decide::begin,
    response::{response_body::ResponseBody, tunnel::tunnel},
};
use crate::{config::HeaderCase, flow::Instant};
use bytes::Bytes;
use core::{future::poll_fn, mem, pin::pin, task::Poll};
use std::sync::Arc;

/// What follows a request.
enum Next {
    Request,
    Close {
        /// Whether the client may still be sending what is not read.
        drains: bool,
    },
    /// The client has left, or is cut off.
    Gone,
}

impl<T: ClientIo> Session<'_, '_, T> {
    /// Serves requests until the connection is idle, and returns since when; `None` if it has
    /// ended. It begins with what has come, of which the first byte came at `since`. No request has
    /// been under way since `idle_since`: blank lines do not change that.
    pub(super) async fn run(
        mut self,
        began: Bytes,
        since: Option<Instant>,
        idle_since: Instant,
    ) -> Option<Instant> {
        self.input = Input::beginning_with(&began);
        self.head_since = since;
        self.idle_since = Some(idle_since);
        drop(began);
        loop {
            let next = match poll_fn(|context| self.poll_head(context)).await {
                HeadWait::Whole(length) => self.serve(length).await,
                HeadWait::Idle(since) => return Some(since),
                HeadWait::Over => Next::Close { drains: false },
                HeadWait::Gone => Next::Gone,
                HeadWait::Rejected(unread) => self.reject(unread),
            };
            match next {
                Next::Request => {}
                Next::Close { drains } => {
                    Box::pin(self.close(drains)).await;
                    return None;
                }
                Next::Gone => return None,
            }
        }
    }

    /// Answers without reading a request, and closes the connection.
    pub(super) async fn reject_and_close(mut self, why: UnreadableRequest) {
        if let Next::Close { drains } = self.reject(why) {
            self.close(drains).await;
        }
    }

    /// Answers a request that could not be read.
    #[cold]
    fn reject(&mut self, unread: UnreadableRequest) -> Next {
        unread.note(&self.peer);
        let Some((response, body)) = unread.answer() else { return Next::Gone };
        let date = self.peer.date();
        let is_titled = self.options.header_case == HeaderCase::Title;
        write_own(self.outgoing.head(), &response, &body, is_titled, &date);
        Next::Close { drains: true }
    }

    /// Serves the request whose head has this length.
    async fn serve(&mut self, length: usize) -> Next {
        let begun = poll_fn(|context| Poll::Ready(self.begin(length, context))).await;
        let (request, mut current) = match begun {
            Ok(begun) => begun,
            Err(unread) => return self.reject(unread),
        };
        let response = {
            let completion = self.completion.take();
            let completion = completion.unwrap_or_else(|| Completion::new(Arc::clone(&self.peer)));
            let mut handled = pin!(begin(completion, request).serve());
            poll_fn(|context| self.poll_response(handled.as_mut(), &mut current, context)).await
        };
        let Some(response) = response else { return Next::Gone };
        current.answer();
        let (head, body) = response.into_parts();
        if body.is_without_response() {
            self.peer.spare_heads.give_response(head);
            // With unread bytes, the kernel resets the connection. The client could then lose the
            // responses to its earlier requests.
            return Next::Close { drains: self.requests > 1 };
        }
        if body.is_tunnel() {
            Box::pin(self.join(&head, body, current.is_titled)).await;
            return Next::Gone;
        }
        let mut relay = self.begin_relay(&head, body, &mut current);
        self.peer.spare_heads.give_response(head);
        match poll_fn(|context| self.poll_relay(&mut relay, &mut current, context)).await {
            Relayed::Whole => self.next(relay.keeps_alive, current).await,
            Relayed::CutOff => Next::Gone,
        }
    }

    /// Joins the client to the server that has agreed to another protocol.
    async fn join(&mut self, head: &ResponseHead, body: ResponseBody, is_titled: bool) {
        let Some(joined) = body.into_tunnel() else { return };
        let date = self.peer.date();
        response::write_agreement(self.outgoing.head(), head, is_titled, &date);
        if poll_fn(|context| self.poll_flush(context)).await.is_ok() {
            let ahead = mem::take(&mut self.input.bytes).freeze();
            tunnel(Prefixed::new(&mut *self.io, ahead), joined).await;
        }
    }

    /// Decides what follows a request that has been answered.
    async fn next(&mut self, keeps_alive: bool, mut current: CurrentRequest) -> Next {
        let is_kept = keeps_alive && current.keeps_alive && !self.has_ended;
        let is_kept = is_kept && !self.peer.handle.is_draining();
        if current.is_read() {
            let drains = !self.input.bytes.is_empty();
            return if is_kept { Next::Request } else { Next::Close { drains } };
        }
        if is_kept && Box::pin(self.discard(&mut current)).await {
            return Next::Request;
        }
        Next::Close { drains: true }
    }
}
