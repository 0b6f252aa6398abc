//! The state that every page of the admin listener may read.

use super::{edit::Save, live::Sampler, live_keys::Surveys, readiness::Readiness};
use crate::{
    access_log::Watching,
    acme,
    clock::Clock,
    cluster::Store,
    config::{self, Live},
    flow::Instant,
    key_names::KeyNames,
    meter::Counters,
    preview::{Command, Previews},
    rejections::Rejections,
    route::Seed,
    worst_paths::WorstPaths,
};
use std::{net::SocketAddr, sync::Arc};
use tokio::sync::{Semaphore, mpsc};

/// Large pages in flight: one of ten thousand busy routes takes 70 MB, which a slow reader holds.
pub(super) const PAGES: usize = 4;

/// Streams of events that are open.
const STREAMS: usize = 16;

/// The state that the pages show, and the sender for reloads.
#[derive(Debug)]
pub struct State {
    /// The configuration in force.
    pub live: Arc<Live>,
    /// The process's counters.
    pub counters: Arc<Counters>,
    /// The state for `/readyz`.
    pub readiness: Arc<Readiness>,
    /// The shared store, if any.
    pub store: Option<Arc<Store>>,
    /// Receives a message when a client requests a reload.
    pub reload: mpsc::Sender<()>,
    /// The preview, if there is one.
    pub previews: Arc<Previews>,
    /// Receives what clients want of previews.
    pub preview: mpsc::Sender<Command>,
    /// Receives new texts for the file.
    pub saves: mpsc::Sender<Save>,
    /// The last rejections.
    pub rejections: Arc<Rejections>,
    /// The paths whose requests fail or are slow.
    pub worst_paths: Arc<WorstPaths>,
    /// Follows requests as they end.
    pub watching: Watching,
    /// The key of clients' fingerprints.
    pub seed: Seed,
    /// The clock of the process.
    pub clock: Clock,
    /// The time when the process started.
    pub started: Instant,
    /// The names of keys, if they may be shown.
    pub key_names: Arc<KeyNames>,
    /// The certificates by ACME.
    pub acme: Arc<acme::Status>,
}

/// The admin listener's state.
#[derive(Debug)]
pub(super) struct Admin {
    pub state: State,
    /// Samples what the dashboard shows.
    pub sampler: Arc<Sampler>,
    /// The fullest keys of rules.
    pub surveys: Surveys,
    /// Where the listener is, with its actual port.
    pub address: SocketAddr,
    /// Room for large pages.
    pub pages: Arc<Semaphore>,
    /// Room for streams of events.
    pub streams: Arc<Semaphore>,
    /// The file's `admin` when the listener was opened, which holds for open connections when an edit
    /// removes the key.
    at_start: Option<config::Admin>,
}

impl Admin {
    pub(super) fn new(state: State, address: SocketAddr) -> Self {
        let at_start = state.live.load().settings.admin.clone();
        let pages = Arc::new(Semaphore::new(PAGES));
        let streams = Arc::new(Semaphore::new(STREAMS));
        let sampler = Arc::default();
        let surveys = Surveys::default();
        Self { state, sampler, surveys, address, pages, streams, at_start }
    }

    /// Returns the listener's settings in force.
    pub(super) fn settings(&self) -> Option<config::Admin> {
        self.state.live.load().settings.admin.clone().or_else(|| self.at_start.clone())
    }
}
