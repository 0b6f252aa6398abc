//! What a client wants to see: `?q=shop&sort=rejected&page=1&size=20`.

use super::sort::RouteSort;

/// Which routes and upstreams a client wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// In lower case.
    words: Vec<String>,
    pub(super) sort: RouteSort,
    pub(super) page: usize,
    pub(super) size: usize,
    /// Whether the five minutes before are left out.
    pub(super) is_brief: bool,
}

/// How many routes a page has, and how many at most.
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
