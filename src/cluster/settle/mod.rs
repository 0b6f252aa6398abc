//! Costs that are settled in the store after the responses.
//!
//! A settlement moves the state that the store charged by the difference between the reserve and the
//! cost, by the arithmetic of [`flow`](crate::flow). It has a number, so that the store applies it once
//! however often it is sent (`settle.lua`). Until the store confirms it, it waits in a [backlog] that all
//! workers share: the worker whose request has ended sends it at once, and again after a failure.
//! Decisions about the same state carry it too, so that at this gateway none comes before it.

pub(super) mod backlog;
pub(super) mod call;
