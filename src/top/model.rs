//! The state of the screen: the latest sample, the choices of the user, and the connection.

use super::input::Key;
use crate::admin::{
    RouteSort,
    sample::{Columns, ConfigState, History, Point, Sample},
};
use std::collections::{HashMap, VecDeque};

/// The number of seconds of requests that are kept for each route.
pub(super) const SECONDS: usize = 300;

/// The longest search, in characters.
const LONGEST_FILTER: usize = 200;

/// The routes that are requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) sort: RouteSort,
    pub(super) filter: String,
}

/// An event of the gateway, or the end of the connection.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Sample(Box<Sample>),
    Config(Box<ConfigState>),
    History(Box<History>),
    /// The connection is lost, for this reason.
    Lost(String),
}

/// The state of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ConnectionState {
    #[default]
    Connecting,
    Live,
    Lost(String),
}

/// The panel below the routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Panel {
    #[default]
    Rules,
    Budgets,
    Upstreams,
    Configuration,
    Paths,
}

/// A request of a key that goes beyond the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    None,
    /// Other routes are wanted.
    Ask,
    Suspend,
    Quit,
}

/// Requests a second of the last [`SECONDS`].
#[derive(Clone, Debug, Default)]
pub(super) struct Series(VecDeque<u64>);

/// Everything that is shown.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub query: Query,
    pub connection: ConnectionState,
    pub sample: Option<Sample>,
    pub config: ConfigState,
    pub all: Series,
    series: HashMap<String, Series>,
    /// The route that is chosen, by name, so that it stays chosen when the order changes.
    chosen: Option<String>,
    pub panel: Panel,
    pub is_paused: bool,
    pub has_help: bool,
    /// The search that is being typed.
    pub typed: Option<String>,
}

impl Query {
    pub(super) fn new(sort: RouteSort, filter: Option<String>) -> Self {
        Self { sort, filter: filter.unwrap_or_default() }
    }
}

impl Series {
    fn push(&mut self, point: &Point) {
        self.0.push_back(point.passed + point.delayed + point.rejected);
        if self.0.len() > SECONDS {
            self.0.pop_front();
        }
    }

    fn of(columns: &Columns) -> Self {
        let sums = columns.passed.iter().zip(&columns.delayed).zip(&columns.rejected);
        let sums = sums.map(|((passed, delayed), rejected)| {
            u64::from(*passed) + u64::from(*delayed) + u64::from(*rejected)
        });
        Self(sums.take(SECONDS).collect())
    }

    /// Returns the last `count` seconds, oldest first.
    pub(super) fn latest(&self, count: usize) -> impl Iterator<Item = u64> {
        self.0.iter().skip(self.0.len().saturating_sub(count)).copied()
    }
}

impl Model {
    pub(super) fn new(query: Query) -> Self {
        Self { query, ..Self::default() }
    }

    /// Takes what the gateway has sent. While it is paused, only the connection's state is taken.
    pub(super) fn take(&mut self, message: Message) {
        match message {
            Message::Lost(why) => self.connection = ConnectionState::Lost(why),
            Message::Sample(_) | Message::Config(_) | Message::History(_) if self.is_paused => {
                self.connection = ConnectionState::Live;
            }
            Message::Config(config) => self.config = *config,
            Message::History(history) => {
                self.all = Series::of(&history.all);
                let routes = history.routes.iter();
                self.series.extend(routes.map(|(name, at)| (name.clone(), Series::of(at))));
            }
            Message::Sample(sample) => self.show(*sample),
        }
    }

    fn show(&mut self, sample: Sample) {
        self.connection = ConnectionState::Live;
        self.all.push(&sample.all);
        let rows = &sample.routes.rows;
        // A route that is gone is sent with its history when it comes back.
        self.series.retain(|name, _| rows.iter().any(|route| route.name == *name));
        for route in rows {
            self.series.entry(route.name.clone()).or_default().push(&route.now);
        }
        self.sample = Some(sample);
    }

    pub(super) fn series(&self, route: &str) -> Option<&Series> {
        self.series.get(route)
    }

    /// Returns the index of the chosen route: the first one if it is not there.
    pub(super) fn chosen(&self) -> usize {
        let rows = self.sample.iter().flat_map(|sample| &sample.routes.rows);
        let mut names = rows.map(|route| &route.name);
        names.position(|name| Some(name) == self.chosen.as_ref()).unwrap_or(0)
    }

    /// Does what a key stands for. `page` is how many routes are seen at once.
    pub(super) fn press(&mut self, key: Key, page: usize) -> Request {
        if key == Key::Suspend {
            return Request::Suspend;
        }
        if let Some(typed) = self.typed.take() {
            return self.search(typed, key);
        }
        if self.has_help {
            self.has_help = false;
            return if matches!(key, Key::Char('q') | Key::End) {
                Request::Quit
            } else {
                Request::None
            };
        }

        match key {
            Key::Char('q') | Key::End => return Request::Quit,
            Key::Char('?' | 'h') => self.has_help = true,
            Key::Char('/') => self.typed = Some(self.query.filter.clone()),
            Key::Char('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Char('s') => {
                self.query.sort = self.query.sort.next();
                return Request::Ask;
            }
            Key::Escape if !self.query.filter.is_empty() => {
                self.query.filter.clear();
                return Request::Ask;
            }
            Key::Tab => self.panel = self.panel.next(),
            Key::Char('r') => self.panel = Panel::Rules,
            Key::Char('b') => self.panel = Panel::Budgets,
            Key::Char('u') => self.panel = Panel::Upstreams,
            Key::Char('c') => self.panel = Panel::Configuration,
            Key::Char('f') => self.panel = Panel::Paths,
            Key::Up | Key::Char('k') => self.choose(|at| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.choose(|at| at + 1),
            Key::PageUp => self.choose(|at| at.saturating_sub(page)),
            Key::PageDown => self.choose(|at| at + page),
            Key::First => self.choose(|_| 0),
            Key::Last => self.choose(|_| usize::MAX),
            Key::Escape | Key::Enter | Key::Backspace | Key::Suspend | Key::Char(_) => {}
        }
        Request::None
    }

    /// Goes on with a search.
    fn search(&mut self, mut typed: String, key: Key) -> Request {
        match key {
            Key::Enter => {
                if self.query.filter == typed {
                    return Request::None;
                }
                self.query.filter = typed;
                return Request::Ask;
            }
            Key::Escape => return Request::None,
            Key::End => return Request::Quit,
            Key::Backspace => _ = typed.pop(),
            Key::Char(sign) if typed.chars().count() < LONGEST_FILTER => typed.push(sign),
            Key::Char(_)
            | Key::Tab
            | Key::Up
            | Key::Down
            | Key::PageUp
            | Key::PageDown
            | Key::First
            | Key::Last
            | Key::Suspend => {}
        }

        self.typed = Some(typed);
        Request::None
    }

    fn choose(&mut self, other: impl Fn(usize) -> usize) {
        let at = self.chosen();
        let Some(sample) = &self.sample else { return };
        let rows = &sample.routes.rows;
        let at = other(at).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(at).map(|route| route.name.clone());
    }
}

impl Panel {
    const fn next(self) -> Self {
        match self {
            Self::Rules => Self::Budgets,
            Self::Budgets => Self::Upstreams,
            Self::Upstreams => Self::Configuration,
            Self::Configuration => Self::Paths,
            Self::Paths => Self::Rules,
        }
    }
}
