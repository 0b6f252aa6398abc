//! What the dashboard and `flowgate top` show: a sample a second of every route, kept for five
//! minutes, and a stream of it for each client.
//!
//! The samples are taken on the control thread. A sample holds a route's lock no longer than a
//! decision does, and that of a route with traffic as long as `/routes` does.

mod board;
mod failing;
mod history;
mod query;
mod route;
mod sampler;
mod server;
mod sort;
mod stream;
mod upstreams;
mod view;

pub(super) use query::Query;
pub(super) use sampler::Sampler;
pub use sort::RouteSort;
pub(super) use stream::send;
