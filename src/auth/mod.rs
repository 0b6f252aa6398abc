//! Authenticates clients: passwords, what the process remembers of them, and tokens. Pure: files
//! come as bytes, time as values; the caller waits and locks.

mod attempts;
mod client_certificate;
mod jwt;
mod users;

pub use attempts::Attempts;
pub use client_certificate::client_certificate;
pub use jsonwebtoken::Algorithm;
pub use jwt::{ALGORITHMS, JwtKeys, JwtRules, TokenSource};
pub use users::{Credentials, InvalidUsers, PasswordCheck, Users};
