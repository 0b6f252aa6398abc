//! The data of the dashboard and of `flowgate top`: a sample a second of every route, kept for five
//! minutes, and its view for each client.
//!
//! The samples are taken on the control thread. A sample holds a route's lock no longer than a
//! decision does, and that of a route with traffic as long as `/routes` does.

mod board;
mod budgets;
mod failing;
mod query;
mod route;
mod upstreams;
mod view;

pub(super) use board::Sampler;
pub(super) use budgets::BudgetsPage;
pub(super) use query::Query;
pub use query::RouteSort;
pub(super) use view::{Around, RoutesPage};
