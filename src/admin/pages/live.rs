//! `/live`, which the dashboard and `flowgate top` follow: a sample a second as server-sent events.
//!
//! A sample is written when the client has taken the one before. So a slow client gets fewer of
//! them, and no more than one waits for it. One that takes none for 15 seconds is dropped.

use crate::admin::{
    context::Admin,
    endpoint::{Access, Answer, Ask, Endpoint, Pending},
    live::{Around, BudgetsPage, Query, RoutesPage},
    live_keys::Names,
    reply::stream,
    sample::{ConfigState, History, Sample},
};
use bytes::Bytes;
use core::time::Duration;
use std::{borrow::Cow, collections::HashSet, fmt::Write, sync::Arc};
use tokio::sync::mpsc;

pub(super) const ENDPOINTS: [Endpoint; 1] = [Endpoint {
    path: "/live",
    methods: "GET",
    about: "a sample of all of this a second, as server-sent events",
    access: Access::Operators,
    most_body: 0,
    answer: Answer::Later(follow),
}];

fn follow(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        let (sender, receiver) = mpsc::channel(1);
        let reply = stream(&admin, "text/event-stream", receiver);
        if reply.status().is_success() {
            let query = Query::read(|name| ask.query(name).next().map(Cow::into_owned));
            let stopping = ask.stopping().cancelled_owned();
            let sending = send(admin, query, sender);
            tokio::spawn(async {
                tokio::select! {
                    () = sending => {}
                    () = stopping => {}
                }
            });
        }
        reply
    })
}

/// The longest time in which a client may take no sample.
const PATIENCE: Duration = Duration::from_secs(15);

/// The number of samples for which the order of the routes holds, so that rows do not change places all
/// the time.
const STEADY: u64 = 5;

/// A client, and the events that it has been sent.
#[derive(Debug)]
struct Client {
    admin: Arc<Admin>,
    query: Query,
    page: RoutesPage,
    budgets: BudgetsPage,
    /// Under which version of the configuration the page was made.
    version: u64,
    /// The routes whose history it has.
    sent: HashSet<Arc<str>>,
    edits: Option<u64>,
    events: u64,
}

/// Sends a sample a second, and what belongs to it, until the client leaves or is too slow.
pub(crate) async fn send(admin: Arc<Admin>, query: Query, events: mpsc::Sender<Bytes>) {
    let clock = admin.state.clock.clone();
    let mut taken = admin.sampler.taken();
    let mut client = Client {
        admin,
        query,
        page: RoutesPage::default(),
        budgets: BudgetsPage::default(),
        version: 0,
        sent: HashSet::new(),
        edits: None,
        events: 0,
    };

    loop {
        let Ok(Ok(room)) = clock.timeout(PATIENCE, events.reserve()).await else { return };
        client.turn();
        client.find_keys().await;
        room.send(Bytes::from(client.next()));
        tokio::select! {
            () = events.closed() => return,
            changed = taken.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

impl Client {
    /// Makes the page again, if it is time.
    fn turn(&mut self) {
        let board = self.admin.sampler.board();
        let Some((snapshot, _)) = board.routes() else { return };
        if self.events.is_multiple_of(STEADY) || snapshot.version != self.version {
            self.page = RoutesPage::of(&board, &self.query);
            self.budgets = BudgetsPage::of(&board, &self.query);
            self.version = snapshot.version;
        }
    }

    /// Brings the fullest keys of the page's routes and shared rules up to date.
    async fn find_keys(&self) {
        let known = self.admin.sampler.board().routes().map(|(snapshot, _)| Arc::clone(snapshot));
        let Some(snapshot) = known.filter(|known| known.version == self.version) else { return };
        for index in &self.page.indexes {
            if let Some(route) = snapshot.routes.get(*index) {
                self.admin.surveys.refresh(route.gate_rules(), &self.admin.state.clock).await;
            }
        }
        for index in &self.budgets.indexes {
            if let Some(group) = snapshot.groups.get(*index) {
                self.admin.surveys.refresh(group.gate_rules(), &self.admin.state.clock).await;
            }
        }
    }

    /// Returns the next events.
    fn next(&mut self) -> String {
        let mut text = if self.events == 0 { "retry: 2000\n\n" } else { "" }.to_owned();
        let admin = Arc::clone(&self.admin);
        let state = &admin.state;
        admin.sampler.catch_up(&state.live, &state.clock);
        let board = admin.sampler.board();
        let Some((snapshot, tracks)) = board.routes() else { return text + ": no sample yet\n\n" };

        if snapshot.version != self.version {
            self.page = RoutesPage::of(&board, &self.query);
            self.budgets = BudgetsPage::of(&board, &self.query);
            self.version = snapshot.version;
        }

        let around = Around {
            readiness: &state.readiness,
            store: state.store.as_deref(),
            surveys: &admin.surveys,
            names: Names::of(snapshot, &state.key_names),
            worst_paths: &state.worst_paths,
            started: admin.state.started,
            now: state.clock.now(),
        };
        let sample = Sample::of(&board, snapshot, &self.page, &self.budgets, &self.query, around);

        if self.edits.replace(sample.edits) != Some(sample.edits) {
            let started = state.clock.wall(admin.state.started);
            event(&mut text, "config", &ConfigState::of(snapshot, around, started));
        }
        if !self.query.is_brief {
            let has_history = |index: &&usize| tracks[**index].history.is_some();
            let name = |index: &usize| Arc::clone(&snapshot.routes[*index].name);
            let shown: Vec<usize> = self.page.indexes.iter().filter(has_history).copied().collect();
            let is_new = |index: &usize| !self.sent.contains(&name(index));
            let fresh: Vec<usize> = shown.iter().copied().filter(is_new).collect();
            if self.events == 0 || !fresh.is_empty() {
                event(&mut text, "history", &History::of(&board, &fresh));
            }
            // A route that comes back is sent again: its client has dropped it.
            self.sent = shown.iter().map(name).collect();
        }
        event(&mut text, "sample", &sample);
        self.events += 1;
        text
    }
}

/// Adds an event. What cannot be written as JSON is left out.
fn event(text: &mut String, name: &str, data: &impl serde::Serialize) {
    if let Ok(json) = serde_json::to_string(data) {
        // Writing to a String cannot fail.
        _ = write!(text, "event: {name}\ndata: {json}\n\n");
    }
}
