//! Why a command gets no answer from the admin listener, and what to do about it.

use super::endpoint::AdminEndpoint;
use crate::config;
use http::StatusCode;
use std::{io, path::PathBuf};

/// The variable that may hold the token.
pub(super) const TOKEN_VARIABLE: &str = "FLOWGATE_ADMIN_TOKEN";

/// Why the admin listener was not asked, or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The gateway says no, and why. The text is its own.
    #[error("{text}")]
    Rejected {
        /// The status of the answer.
        status: StatusCode,
        /// The body of the answer.
        text: String,
    },
    /// The configuration that should name the listener is not there.
    #[error("{0}\nor name the admin listener with --admin ADDRESS")]
    Config(config::Diagnostics),
    /// The configuration has no admin listener.
    #[error(
        "{} has no admin listener: write `admin: {{ listen: 127.0.0.1:9901 }}`, which a running \
         gateway opens at once, or name another gateway's with --admin ADDRESS", .0.display()
    )]
    NoListener(PathBuf),
    /// A file with a token or a certificate cannot be used.
    #[error("cannot use {}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// The token cannot be sent.
    #[error("the token has invalid characters")]
    BadToken,
    /// Nothing listens there, or the network does not lead there.
    #[error(
        "cannot connect to the admin listener at {endpoint}: {cause}; is the gateway running, and \
         has its file `admin` with this address? Name another address with --admin ADDRESS"
    )]
    Unreachable {
        /// Where it should be.
        endpoint: AdminEndpoint,
        /// Why there is no connection.
        cause: io::Error,
    },
    /// The listener's certificate is not trusted, or it has no TLS.
    #[error(
        "no TLS with the admin listener at {endpoint}: {cause}; name the authority of its \
         certificate with --ca FILE, or write http:// if it has no TLS"
    )]
    Tls {
        /// Where it is.
        endpoint: AdminEndpoint,
        /// Why there is no session.
        cause: io::Error,
    },
    /// The listener wants a token, and none was sent.
    #[error(
        "the admin listener at {endpoint} wants a token{problem}: name its file with --token-file, or set \
         {TOKEN_VARIABLE}; or show a certificate with --client-cert and --client-key, if it takes one"
    )]
    NoToken {
        /// Where it is.
        endpoint: AdminEndpoint,
        /// Why the configuration's token cannot be sent, in parentheses, or nothing.
        problem: String,
    },
    /// The listener wants another token than the one sent.
    #[error("the token is not the one of the admin listener at {0}")]
    WrongToken(AdminEndpoint),
    /// The listener does not know the page.
    #[error(
        "the gateway at {endpoint} has no page {path}: it is of another version than this command, \
         or no flowgate"
    )]
    NoPage {
        /// Where it is.
        endpoint: AdminEndpoint,
        /// The request.
        path: String,
    },
    /// No answer came in time.
    #[error("the admin listener at {endpoint} has not answered in {seconds} s")]
    TooLate {
        /// Where it is.
        endpoint: AdminEndpoint,
        /// The time that it had.
        seconds: u64,
    },
    /// The answer does not come from an admin listener.
    #[error("cannot read the answer of the admin listener at {endpoint}: {cause}")]
    Unreadable {
        /// Where it is.
        endpoint: AdminEndpoint,
        /// The error in it.
        cause: String,
    },
    /// The command itself cannot go on.
    #[error(transparent)]
    Io(#[from] io::Error),
}
