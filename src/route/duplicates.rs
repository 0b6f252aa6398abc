//! The value of a key that a request has several times, and the reasons why it has none.

/// The value that counts if a request has a header, cookie, query parameter or member of the key
/// several times.
///
/// If the upstream reads another value, a client can choose the key that it counts under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDuplicate {
    /// The first.
    First,
    /// The last.
    Last,
    /// None: the request is rejected.
    #[default]
    Reject,
}

impl OnDuplicate {
    pub(super) fn pick<V>(self, mut values: impl Iterator<Item = V>) -> Result<V, NoKey> {
        let first = values.next().ok_or(NoKey::Missing)?;
        match self {
            Self::Last => Ok(values.last().unwrap_or(first)),
            Self::Reject if values.next().is_some() => Err(NoKey::Duplicate),
            Self::First | Self::Reject => Ok(first),
        }
    }
}

/// The reason why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// A part is missing or empty.
    Missing,
    /// A part is repeated, or servers read it differently.
    Duplicate,
}
