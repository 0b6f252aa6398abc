//! `/requests`: requests as they end, sent to one client as lines of the access log.

use crate::{
    access_log::{StreamEnd, StreamLine, StreamState, Watch, Watching},
    admin::{
        context::Admin,
        endpoint::{Access, Answer, Ask, Endpoint, Pending},
        reply::{plain, stream},
    },
    flow::Instant,
};
use bytes::Bytes;
use core::time::Duration;
use http::StatusCode;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The time for which requests are sent: by default, at least and at most.
const USUAL: Duration = Duration::from_mins(10);
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_hours(24);

pub(super) const ENDPOINTS: [Endpoint; 1] = [Endpoint {
    path: "/requests",
    methods: "GET",
    about: "requests as they end, as lines of the access log; ?for=10m; with admin.show_keys",
    access: Access::Operators,
    most_body: 0,
    answer: Answer::Later(follow),
}];

fn follow(admin: Arc<Admin>, ask: Ask) -> Pending {
    Box::pin(async move {
        if !admin.state.live.load().settings.shows_keys() {
            let text = "requests show the addresses and users of clients: write `show_keys: true` \
                        under `admin` in the gateway's file\n";
            return plain(StatusCode::FORBIDDEN, text);
        }
        let time = match time(&ask) {
            Ok(time) => time,
            Err(why) => return plain(StatusCode::BAD_REQUEST, why + "\n"),
        };
        let (sender, receiver) = mpsc::channel(1);
        let reply = stream(&admin, "application/x-ndjson", receiver);
        if !reply.status().is_success() {
            return reply;
        }
        let Some(watch) = admin.state.watching.begin() else {
            let text = format!("{} clients follow the requests, and no more may\n", Watching::MOST);
            return plain(StatusCode::SERVICE_UNAVAILABLE, text);
        };
        let started = admin.state.clock.now();
        let stopping = ask.stopping();
        let stream = Stream { admin, watch, started, until: started + time, stopping };
        tokio::spawn(stream.send(sender));
        reply
    })
}

/// Returns how long requests are wanted, or what is wrong with the query.
fn time(ask: &Ask) -> Result<Duration, String> {
    let query = ask.head.uri.query().unwrap_or_default();
    let mut names = query.split('&').map(|field| field.split('=').next().unwrap_or_default());
    if let Some(unknown) = names.find(|name| !matches!(*name, "" | "for")) {
        return Err(format!("there is no field `{}`: write `for=10m`", unknown.escape_debug()));
    }
    let mut given = ask.query("for");
    let Some(text) = given.next() else { return Ok(USUAL) };
    let time = humantime::parse_duration(&text).ok().filter(|_| given.next().is_none());
    time.filter(|time| (LEAST..=MOST).contains(time))
        .ok_or_else(|| "`for` is a time from 1s to 24h, as in `for=10m`".to_owned())
}

/// The time between two looks for lines.
const LOOK: Duration = Duration::from_millis(100);

/// The time between two lines about the state of the stream.
const STATE: Duration = Duration::from_secs(5);

/// The longest time in which a client may take no lines.
const PATIENCE: Duration = Duration::from_secs(15);

/// The number of bytes that are written at once, but for the rest of a line.
const PIECE: usize = 256 * 1024;

/// The requests that one client follows.
#[derive(Debug)]
pub(super) struct Stream {
    pub admin: Arc<Admin>,
    pub watch: Watch,
    pub started: Instant,
    /// The time when it ends.
    pub until: Instant,
    /// Cancelled when the listener closes.
    pub stopping: CancellationToken,
}

impl Stream {
    /// Sends lines until the time is over, the client leaves or is too slow, or the gateway ends.
    pub(super) async fn send(mut self, pieces: mpsc::Sender<Bytes>) {
        let clock = self.admin.state.clock.clone();
        let mut next_state = self.started + STATE;
        let mut ended = None;

        loop {
            let Ok(Ok(room)) = clock.timeout(PATIENCE, pieces.reserve()).await else { return };
            let now = clock.now();
            ended = ended.or_else(|| self.end(now));
            if ended.is_some() {
                // What waits is sent, and nothing that comes later.
                self.watch.stop();
            }
            let mut text = Vec::new();
            let has_more = self.watch.take(&mut text, PIECE);
            let is_last = ended.is_some() && !has_more;
            if is_last || now >= next_state {
                self.write_state(&mut text, now, ended.filter(|_| is_last));
                next_state = now + STATE;
            }
            if !text.is_empty() {
                room.send(text.into());
            }
            if is_last {
                return;
            }
            if has_more {
                continue;
            }
            tokio::select! {
                () = pieces.closed() => return,
                () = self.stopping.cancelled() => {}
                () = clock.sleep_until((now + LOOK).min(self.until)) => {}
            }
        }
    }

    /// Returns why the stream is to end, if it is.
    fn end(&self, now: Instant) -> Option<StreamEnd> {
        if self.stopping.is_cancelled() {
            Some(StreamEnd::Shutdown)
        } else if now >= self.until {
            Some(StreamEnd::Time)
        } else if !self.admin.state.live.load().settings.shows_keys() {
            Some(StreamEnd::ShowKeys)
        } else {
            None
        }
    }

    fn write_state(&self, text: &mut Vec<u8>, now: Instant, ended: Option<StreamEnd>) {
        let seconds = now.since(self.started).as_secs_f64();
        let requests = self.watch.taken();
        let line = StreamLine {
            stream: StreamState { requests, lost: self.watch.lost(), seconds, ended },
        };
        // Writing to memory cannot fail.
        if serde_json::to_writer(&mut *text, &line).is_ok() {
            text.push(b'\n');
        }
    }
}
