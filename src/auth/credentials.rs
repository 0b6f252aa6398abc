//! A user and a password, as a request has them.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use core::fmt;

/// The longest user that a request may name, in bytes.
const LONGEST_USER: usize = 255;

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A user and a password (RFC 7617).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// At most 255 bytes, without control characters.
    pub user: String,
    /// Any bytes.
    pub password: Vec<u8>,
}

impl Credentials {
    /// Reads the value of an `Authorization` field; `None` if it is not of the scheme `Basic`, or
    /// malformed.
    pub fn read(field: &[u8]) -> Option<Self> {
        let (scheme, encoded) = field.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let mut user = ENGINE.decode(encoded.trim_ascii()).ok()?;
        let colon = user.iter().position(|byte| *byte == b':')?;
        let password = user.split_off(colon + 1);
        user.truncate(colon);
        let user = String::from_utf8(user).ok()?;
        let fits = user.len() <= LONGEST_USER && !user.contains(char::is_control);
        fits.then_some(Self { user, password })
    }
}

// The password must never reach a log.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(field: &str) -> Option<(String, String)> {
        let Credentials { user, password } = Credentials::read(field.as_bytes())?;
        Some((user, String::from_utf8_lossy(&password).into_owned()))
    }

    #[test]
    fn the_first_colon_ends_the_user() {
        let expected = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        // The example of RFC 7617, section 2, and that of 2.1 with a character beyond ASCII.
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), expected("Aladdin", "open sesame"));
        assert_eq!(read("bAsIc  dGVzdDoxMjPCow=="), expected("test", "123£"));
        assert_eq!(read("Basic YTpiOmM"), expected("a", "b:c"));
        assert_eq!(read("Basic Og=="), expected("", ""));
    }

    #[test]
    fn what_is_malformed_has_no_credentials() {
        for field in [
            "",
            "Basic",
            "Basic ",
            "Basic ?",
            "Bearer YTpi",
            "Basic YWI=",
            "Basic /zpi",
            "Basic CTpi",
            "BasicYTpi",
        ] {
            assert_eq!(read(field), None, "{field}");
        }
        let long = format!("Basic {}", ENGINE.encode(format!("{}:x", "u".repeat(256))));
        assert_eq!(read(&long), None);
    }

    #[test]
    fn a_password_is_never_printed() {
        let printed = format!("{:?}", Credentials::read(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        assert!(printed.contains("Aladdin") && !printed.contains("open"), "{printed}");
    }
}
