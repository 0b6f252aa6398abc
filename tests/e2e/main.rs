//! The gateway as a process, over real sockets, as its users meet it.

mod common;

mod operate;
mod proxy;
mod reload;
mod shutdown;
mod throttling;
mod tls;
mod upgrade;
mod upstreams;
