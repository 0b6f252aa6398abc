//! The routes that a client wants to see, and their order: `?q=shop&sort=rejected&page=1&size=20`.

use clap::ValueEnum;

/// The routes and upstreams that a client wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// In lower case.
    words: Vec<String>,
    pub(super) sort: RouteSort,
    pub(super) page: usize,
    pub(super) size: usize,
    /// True if the five minutes before are left out.
    pub(crate) is_brief: bool,
}

/// The number of routes on a page, by default and at most.
const ROWS: usize = 20;
const MOST_ROWS: usize = 100;

/// The longest search.
const LONGEST: usize = 200;

impl Query {
    /// Reads a query by the values of its fields. What makes no sense, it leaves out.
    pub(crate) fn read(field: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| field(name).and_then(|value| value.parse::<usize>().ok());
        let text: String = field("q").unwrap_or_default().chars().take(LONGEST).collect();
        Self {
            words: text.split_whitespace().map(str::to_lowercase).collect(),
            sort: RouteSort::of(&field("sort").unwrap_or_default()),
            page: number("page").unwrap_or_default(),
            size: number("size").unwrap_or(ROWS).clamp(1, MOST_ROWS),
            is_brief: field("brief").is_some_and(|value| value == "true"),
        }
    }

    /// Returns whether `name` is what the client searches.
    pub(super) fn is_name(&self, name: &str) -> bool {
        !self.words.is_empty() && self.words.join(" ") == name.to_lowercase()
    }

    /// Returns whether `text` has all words, in upper or lower case.
    pub(super) fn finds(&self, text: &str) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let text = text.to_lowercase();
        self.words.iter().all(|word| text.contains(word))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[(&str, &str)]) -> Query {
        Query::read(|name| {
            let found = fields.iter().find(|(field, _)| *field == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_query_is_read_as_far_as_it_makes_sense() {
        let fields = [("q", "Shop /api"), ("sort", "name"), ("page", "2"), ("size", "5000")];
        let words = vec!["shop".to_owned(), "/api".to_owned()];
        let wanted = Query { words, sort: RouteSort::Name, page: 2, size: 100, is_brief: false };
        assert_eq!(read(&fields), wanted);
        let none = read(&[]);
        assert_eq!((none.page, none.size, none.sort), (0, 20, RouteSort::Rejected));
        assert_eq!(read(&[("page", "-1"), ("size", ""), ("sort", "%"), ("brief", "1")]), none);
        assert!(read(&[("brief", "true")]).is_brief);
    }

    #[test]
    fn a_text_is_found_by_all_of_its_words() {
        let query = read(&[("q", "sh API")]);
        assert!(query.finds("Shop /api/*"));
        assert!(!query.finds("shop"));
        assert!(read(&[]).finds(""));
        assert!(query.is_name("sh api") && !query.is_name("sh") && !read(&[]).is_name(""));
    }
}
