//! The options of `flowgate suggest`.

use super::percent::Percent;
use crate::{admin_client::AdminOptions, replay::TrafficOptions};
use core::time::Duration;

/// From which traffic, and what for.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("inputs", |arg| arg.required(false).required_unless_present("live")))]
pub struct Options {
    /// The traffic.
    #[command(flatten)]
    pub traffic: TrafficOptions,
    /// The gateway to record.
    #[command(flatten)]
    pub live: LiveOptions,
    /// What to count by: `client_ip`, `header:NAME` or another key of a rule, or several with
    /// commas between.
    #[arg(long, value_name = "KEY", default_value = "client_ip")]
    pub key: String,
    /// The window of the limit. Without it, the one of 1s, 1m and 1h in which clients differ most.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub window: Option<Duration>,
    /// How far above the highest peak the limit is, 50% if neither this nor --target is given.
    #[arg(long, value_name = "PERCENT")]
    pub margin: Option<Percent>,
    /// Suggest the lowest limits that would have rejected at most this share of the requests, as
    /// in `0.1%`.
    #[arg(long, value_name = "PERCENT")]
    pub target: Option<Percent>,
}

/// A running gateway in place of recorded traffic.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LiveOptions {
    /// Record the requests of a running gateway, in place of INPUT. Its file must say
    /// `admin: { show_keys: true }`.
    #[arg(long, conflicts_with_all = ["inputs", "format"])]
    pub live: bool,
    /// How long to record, from 1s to 24h; 10m if this is not given. Ctrl-C ends it early.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub time: Option<Duration>,
    /// Where the gateway is.
    #[command(flatten)]
    pub admin: AdminOptions,
}

/// How long is recorded if no time is given.
const USUAL: Duration = Duration::from_mins(10);

/// What the gateway takes.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_hours(24);

impl Options {
    /// Returns an error of the command line, if any.
    pub fn misuse(&self) -> Option<&'static str> {
        let LiveOptions { live, time, admin } = &self.live;
        if !live && (time.is_some() || *admin != AdminOptions::default()) {
            return Some("`--for` and the options of the admin listener are for `--live`");
        }
        let is_possible = (LEAST..=MOST).contains(&self.live.time());
        (!is_possible).then_some("`--for` is from 1s to 24h")
    }
}

impl LiveOptions {
    /// Returns how long to record.
    pub(super) fn time(&self) -> Duration {
        self.time.unwrap_or(USUAL)
    }
}
