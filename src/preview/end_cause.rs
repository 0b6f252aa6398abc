//! Why a preview ended.

/// Why a preview ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its time is over.
    Time,
    /// Nobody read its report.
    Unread,
    /// An operator ended it.
    Stopped,
    /// The file in force was replaced by another one.
    Reload,
    /// The new file is in force.
    Applied,
    /// Another one began.
    Replaced,
}

impl EndCause {
    /// Says it in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Time => "its time is over",
            Self::Unread => "its report was not read",
            Self::Stopped => "it was stopped",
            Self::Reload => "the file in force was replaced by another one",
            Self::Applied => "the new file was applied",
            Self::Replaced => "another preview began",
        }
    }
}
