//! The users of a password file, as `htpasswd -B` writes it.

use crate::route::Seed;
use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bcrypt::HashParts;
use core::fmt;
use std::{collections::HashMap, sync::Arc};

/// The highest cost of a hash: a check takes some 2 s. Each step doubles it.
const MOST_COST: u32 = 15;

/// Users with the bcrypt hashes of their passwords.
#[derive(PartialEq, Eq)]
pub struct Users {
    hashes: HashMap<Arc<str>, Box<str>>,
    /// Hashes that passwords of unknown users are compared with, one for each user and at its cost, so that
    /// the time does not reveal which names are users.
    decoys: Box<[Box<str>]>,
}

/// Why a file cannot be used. It never holds a part of a hash.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidUsers {
    /// From 1; `None` for the whole file.
    pub line: Option<usize>,
    /// The mistake.
    pub message: String,
}

impl Users {
    /// Reads a file: a line `USER:HASH` for each user. Lines that are empty or begin with `#`, and
    /// what follows a second colon, mean nothing.
    ///
    /// # Errors
    /// The first line that cannot be used: its hash is not bcrypt, its cost is over 15, or its user
    /// has a line already. Also a file without users.
    pub fn read(text: &str) -> Result<Self, InvalidUsers> {
        let mut hashes: HashMap<Arc<str>, Box<str>> = HashMap::new();
        let mut costs = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }

            let wrong = |message: String| InvalidUsers { line: Some(number), message };
            let pair = line.split_once(':').filter(|(user, _)| !user.is_empty());
            // The line is not shown: it may be a password alone.
            let (user, rest) = pair.ok_or_else(|| wrong("it is not `USER:HASH`".to_owned()))?;

            let hash = rest.split(':').next().unwrap_or_default();
            let cost = cost(hash)
                .map_err(|why| wrong(format!("the password of `{}` {why}", user.escape_debug())))?;
            costs.push(cost);

            if hashes.insert(user.into(), hash.into()).is_some() {
                return Err(wrong(format!("`{}` has a line already", user.escape_debug())));
            }
        }

        if hashes.is_empty() {
            return Err(InvalidUsers { line: None, message: "it names no user".to_owned() });
        }

        let decoy = |cost: &u32| format!("$2b${cost:02}${}", ".".repeat(53)).into();
        Ok(Self { hashes, decoys: costs.iter().map(decoy).collect() })
    }

    /// Returns how many users there are.
    pub fn count(&self) -> usize {
        self.hashes.len()
    }

    /// Returns what an unknown user's password is compared with: always the same for the same name.
    fn decoy(&self, name: &str, seed: &Seed) -> &str {
        let place = seed.fingerprint(name.as_bytes()) % self.decoys.len().max(1) as u128;
        usize::try_from(place)
            .ok()
            .and_then(|place| self.decoys.get(place))
            .map_or("", |decoy| decoy)
    }

    /// Returns the check of a user's password. It is the same check for the same hash, user and
    /// password, as its fingerprint shows.
    pub fn check(&self, credentials: Credentials, seed: &Seed) -> PasswordCheck {
        let known = self.hashes.get_key_value(credentials.user.as_str());
        let (user, hash) = match known {
            Some((user, hash)) => (Some(Arc::clone(user)), &**hash),
            None => (None, self.decoy(&credentials.user, seed)),
        };
        let Credentials { user: named, password } = credentials;
        let mut bytes = Vec::with_capacity(16 + named.len() + password.len() + hash.len());
        for part in [named.as_bytes(), &password] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(hash.as_bytes());
        PasswordCheck { print: seed.fingerprint(&bytes), user, hash: hash.into(), password }
    }
}

// Hashes must never reach a log.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// A password to be compared with a user's hash.
pub struct PasswordCheck {
    /// The fingerprint of user, password and hash under a secret of the process.
    pub print: u128,
    /// `None`: there is no such user.
    pub user: Option<Arc<str>>,
    hash: Box<str>,
    password: Vec<u8>,
}

impl PasswordCheck {
    /// Compares them, which takes some 50 ms at the usual cost, for unknown users too.
    pub fn run(&self) -> bool {
        let is_equal = bcrypt::verify(&self.password, &self.hash).unwrap_or(false);
        is_equal && self.user.is_some()
    }
}

// The password must never reach a log.
impl fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordCheck").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Returns the cost of a hash, or why it cannot be used.
fn cost(hash: &str) -> Result<u32, String> {
    let kind = match hash {
        _ if hash.starts_with("$2") => "",
        _ if hash.starts_with("$apr1$") || hash.starts_with("$1$") => "is hashed by MD5",
        _ if hash.starts_with("{SHA}") || hash.starts_with("{SSHA}") => "is hashed by SHA-1",
        _ if hash.starts_with("$5$") || hash.starts_with("$6$") => "is hashed by sha-crypt",
        _ if hash.starts_with("$argon2") => "is hashed by Argon2",
        _ => "is plain text, or hashed by DES",
    };
    if !kind.is_empty() {
        return Err(kind.to_owned());
    }
    let cost = hash.parse::<HashParts>().map_err(|_| "has a malformed bcrypt hash")?.get_cost();
    if !(4..=MOST_COST).contains(&cost) {
        return Err(format!("has the bcrypt cost {cost}; it may be 4 to {MOST_COST}"));
    }
    Ok(cost)
}

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

    // Of the password `open sesame`, with the cost 4.
    fn hash() -> String {
        bcrypt::hash_with_salt("open sesame", 4, [7; 16]).unwrap().to_string()
    }

    fn check(users: &Users, user: &str, password: &str) -> PasswordCheck {
        let password = password.as_bytes().to_vec();
        users.check(Credentials { user: user.to_owned(), password }, &Seed::new([1, 2]))
    }

    #[test]
    fn a_user_needs_the_right_password() {
        let text = format!("# staff\n\nalice:{}\r\nbob:{}:Bob\n", hash(), hash());
        let users = Users::read(&text).unwrap();
        assert_eq!(users.count(), 2);
        assert!(check(&users, "alice", "open sesame").run());
        assert!(check(&users, "bob", "open sesame").run());
        for (user, password) in
            [("alice", "Open sesame"), ("alice", ""), ("Alice", "open sesame"), ("", "")]
        {
            assert!(!check(&users, user, password).run(), "{user}");
        }
    }

    #[test]
    fn htpasswd_and_other_programs_write_these() {
        // htpasswd -nbB, Python's bcrypt, and PHP's password_hash.
        for hash in [
            "$2y$05$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe",
            "$2b$05$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe",
            "$2a$05$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe",
        ] {
            let users = Users::read(&format!("u:{hash}")).unwrap();
            assert!(check(&users, "u", "password").run(), "{hash}");
        }
    }

    #[test]
    fn the_same_check_has_the_same_fingerprint_and_no_other() {
        let users = Users::read(&format!("alice:{0}\nbob:{0}", hash())).unwrap();
        let print = |user: &str, password: &str| check(&users, user, password).print;
        assert_eq!(print("alice", "x"), print("alice", "x"));
        let other = bcrypt::hash_with_salt("open sesame", 4, [8; 16]).unwrap().to_string();
        let edited = Users::read(&format!("alice:{other}")).unwrap();
        for other in [
            print("alice", "y"),
            print("bob", "x"),
            print("alicex", ""),
            check(&edited, "alice", "x").print,
        ] {
            assert_ne!(print("alice", "x"), other);
        }
    }

    #[test]
    fn a_check_of_an_unknown_user_costs_as_much() {
        let dear = bcrypt::hash_with_salt("x", 6, [7; 16]).unwrap().to_string();
        let users = Users::read(&format!("alice:{}\nbob:{dear}", hash())).unwrap();
        let check = check(&users, "nobody", "x");
        assert_eq!(check.hash.parse::<HashParts>().unwrap().get_cost(), 6);
        assert!(!check.run());
    }

    #[test]
    fn other_hashes_are_rejected_and_never_shown() {
        let secret = "s3cret";
        for (line, message) in [
            ("alice:s3cret".to_owned(), "the password of `alice` is plain text, or hashed by DES"),
            ("alice:$apr1$s3cret$x".to_owned(), "the password of `alice` is hashed by MD5"),
            ("alice:{SHA}s3cret".to_owned(), "the password of `alice` is hashed by SHA-1"),
            ("alice:$6$s3cret$x".to_owned(), "the password of `alice` is hashed by sha-crypt"),
            ("alice:$argon2id$s3cret".to_owned(), "the password of `alice` is hashed by Argon2"),
            (
                "alice:$2y$05$s3cret".to_owned(),
                "the password of `alice` has a malformed bcrypt hash",
            ),
            (
                format!("alice:{}", hash().replace("$04$", "$16$")),
                "the password of `alice` has the bcrypt cost 16; it may be 4 to 15",
            ),
            (format!("alice:{0}\nalice:{0}", hash()), "`alice` has a line already"),
            ("s3cret".to_owned(), "it is not `USER:HASH`"),
            (":s3cret".to_owned(), "it is not `USER:HASH`"),
            ("# s3cret".to_owned(), "it names no user"),
        ] {
            let invalid = Users::read(&line).unwrap_err();
            assert_eq!(invalid.message, message);
            assert!(!format!("{invalid:?}").contains(secret));
        }
        let users = format!("{:?}", Users::read(&format!("alice:{}", hash())).unwrap());
        assert!(!users.contains("$2"), "{users}");
    }
}

#[cfg(test)]
mod credentials_tests {
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
