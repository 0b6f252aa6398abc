//! An authenticated client.

use std::sync::Arc;

/// What an authenticated client is: its user, and the claims of its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    user: Option<Arc<str>>,
    claims: Vec<(Box<str>, Box<str>)>,
}

impl Identity {
    /// Returns the identity of this user.
    pub const fn of_user(user: Option<Arc<str>>) -> Self {
        Self { user, claims: Vec::new() }
    }

    /// Returns the identity of a verified token: its `sub`, and other claims by name.
    pub const fn of_token(user: Option<Arc<str>>, claims: Vec<(Box<str>, Box<str>)>) -> Self {
        Self { user, claims }
    }

    /// Returns its user, if it has one.
    pub const fn user(&self) -> Option<&Arc<str>> {
        self.user.as_ref()
    }

    /// Returns a claim of its token, if it has it.
    pub fn claim(&self, name: &str) -> Option<&str> {
        let mut claims = self.claims.iter();
        claims.find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}
