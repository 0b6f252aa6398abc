//! `flowgate docker`: a file of routes for a gateway, from the labels of Docker's containers.
//!
//! It is a process of its own, so that the gateway never sees Docker's socket, which is as good as root.
//!
//! ```text
//! Docker's Engine API ──▶ engine ──▶ containers ──▶ labels ──▶ services ──▶ routes ──▶ file that the
//! on a Unix socket        events     running ones   checked    by name      as YAML    gateway includes
//! ```
//!
//! Whoever may start containers chooses their labels. So each value is of a few characters only, is quoted,
//! and is checked by the reader of configurations alone before it stands beside others: a container cannot
//! change another one's route or keep the file from being valid.

mod command;
mod engine;
mod labels;
mod output;
mod services;

pub use command::{DockerError, Options, run};
pub use engine::EngineError;
