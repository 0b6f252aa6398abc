//! In which order routes are shown.

use clap::ValueEnum;

/// The order of the routes in `flowgate top` and in what the dashboard follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum RouteSort {
    /// The most rejected in the last minute.
    #[default]
    Rejected,
    /// The busiest in the last minute.
    Requests,
    /// The most failed in the last ten seconds.
    Failed,
    /// The slowest by p99.
    Latency,
    /// The most in flight.
    InFlight,
    /// By name.
    Name,
    /// As they match.
    Order,
}

impl RouteSort {
    /// All orders, each followed by the next one.
    pub const ALL: [Self; 7] = [
        Self::Rejected,
        Self::Requests,
        Self::Failed,
        Self::Latency,
        Self::InFlight,
        Self::Name,
        Self::Order,
    ];

    /// Returns the order of a query's word; the first one if there is no such order.
    pub(super) fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|one| one.word() == word).unwrap_or_default()
    }

    /// Returns the word of the admin listener's query.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Requests => "requests",
            Self::Latency => "latency",
            Self::InFlight => "in_flight",
            Self::Name => "name",
            Self::Order => "order",
        }
    }

    /// Returns the order in words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Rejected => "most rejected",
            Self::Failed => "most failed",
            Self::Requests => "most requests",
            Self::Latency => "slowest",
            Self::InFlight => "most in flight",
            Self::Name => "by name",
            Self::Order => "as they match",
        }
    }

    /// Returns the next order; the first one after the last.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|one| *one == self);
        at.and_then(|at| Self::ALL.get(at + 1)).copied().unwrap_or_default()
    }
}
