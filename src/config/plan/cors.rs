//! The scripts of other origins that may use a route, in the form in which responses say it.

use crate::{config::spec::OriginPattern, route::Target};
use http::{HeaderValue, Method};
use std::fmt;

/// The scripts of other origins that may use a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The origins. [`OriginPattern::Any`] is the only one if it is there.
    pub origins: Vec<OriginPattern>,
    /// The methods; `None`: the one that a preflight asks for.
    pub methods: Option<HeaderValue>,
    /// The fields that may be sent; `None`: those that a preflight asks for.
    pub headers: Option<HeaderValue>,
    /// The fields that may be read, if there are any.
    pub expose: Option<HeaderValue>,
    /// True if requests may have cookies and passwords.
    pub credentials: bool,
    /// The time until a browser asks again, in seconds.
    pub max_age: Option<HeaderValue>,
}

impl Cors {
    /// Returns whether scripts of all origins are allowed.
    pub fn allows_any(&self) -> bool {
        matches!(self.origins[..], [OriginPattern::Any])
    }

    /// Returns whether scripts of an origin are allowed.
    pub fn allows(&self, origin: &[u8]) -> bool {
        self.origins.iter().any(|pattern| pattern.allows(origin))
    }
}

/// The origins and whether they may send credentials.
impl fmt::Display for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, origin) in self.origins.iter().enumerate() {
            write!(f, "{}{origin}", if place == 0 { "" } else { ", " })?;
        }
        f.write_str(if self.credentials { ", with credentials" } else { "" })
    }
}

/// Returns the method that a preflight request asks for, if it is one (Fetch, 3.2.2).
pub(in crate::config) fn preflight_method(target: &Target<'_>) -> Option<Method> {
    if *target.method != Method::OPTIONS {
        return None;
    }
    target.headers.get_only("origin")?;
    let asked = target.headers.get_only("access-control-request-method")?;
    Method::from_bytes(asked).ok()
}
