//! `/requests`.

use crate::{
    access_log::Watching,
    admin::{
        context::Admin,
        endpoint::{Access, Answer, Ask, Endpoint, Pending},
        reply::{plain, stream},
        requests::Stream,
    },
};
use core::time::Duration;
use http::StatusCode;
use std::sync::Arc;
use tokio::sync::mpsc;

/// How long requests are sent if the query does not say, and the least and the most that it may say.
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
