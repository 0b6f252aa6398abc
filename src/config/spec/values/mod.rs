//! The leaves of the file: text to a duration, a size, a rate, an address, a name.
//!
//! Each reader takes the text as written and answers with the value or with what is wrong and what
//! to write instead.

mod address;
mod http;
mod listen_address;
mod media;
mod number;
mod origin;
mod rate;
#[cfg(test)]
mod tests;

pub(in crate::config) use address::{
    Endpoint, MAX_SOCKET_PATH, address, canonical, dns_server, nat64_prefix, network, resolve, url,
    written_network,
};
pub use address::{Resolve, ServerUrl, server_url};
pub(in crate::config) use http::{
    RetryOn, StatusOrClose, answer_status, authority, check_path, client_ip_header, copied,
    editable, header_name, header_value, location, method, redirect_status, reject_status,
    retry_on, status, statuses, upgrade,
};
pub use listen_address::ListenAddress;
pub(in crate::config) use listen_address::{file_mode, listen_address};
pub use media::MediaPattern;
pub(in crate::config) use media::media_type;
pub(in crate::config) use number::{
    byte_rate, duration, duration_within, integer, integer_within, optional_timeout, percent,
    ratio, size_within,
};
pub use origin::OriginPattern;
pub(in crate::config) use origin::origin;
pub(in crate::config) use rate::{Limit, PlanNumber, limit, plan_number, rate_of, zone};

pub(in crate::config) use super::geo::{asn, country};
pub(in crate::config) use crate::config::decode::{InvalidValue, Wrong};

use crate::config::diagnostics::quoted;
use std::sync::Arc;

/// Returns what is wrong with a text and what to write.
pub(in crate::config) fn invalid<T>(
    message: impl Into<String>,
    help: impl Into<String>,
) -> Result<T, InvalidValue> {
    Err(InvalidValue { message: message.into(), help: help.into() })
}

/// Returns that `text` is or has what it may not, and what to write.
fn not<T>(text: &str, what: &str, help: impl Into<String>) -> Result<T, InvalidValue> {
    invalid(format!("{} {what}", quoted(text)), help)
}

/// The longest name of a listener, an upstream, a route or a rule.
const MAX_NAME: usize = 64;

/// Reads the name of a listener, an upstream, a route or a rule. Names go into logs, metric labels
/// and the `RateLimit` fields as they are.
pub(in crate::config) fn name(text: &str) -> Result<Arc<str>, InvalidValue> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    if text.is_empty() {
        return invalid("the name is empty", "write a word, as in `checkout`");
    }
    if text.len() > MAX_NAME {
        let message = format!("the name is {} bytes long", text.len());
        return invalid(message, format!("write at most {MAX_NAME}"));
    }
    match text.chars().find(|c| !fits(*c)) {
        None => Ok(text.into()),
        Some(odd) => invalid(
            format!("a name cannot hold {}", quoted(&odd.to_string())),
            "write letters, digits and any of `- _ . / :`",
        ),
    }
}

/// Reports whether it is a word for on or off, which other gateways take where flowgate takes a name.
pub(in crate::config) fn is_switch(word: &str) -> bool {
    matches!(word, "true" | "false" | "yes" | "no" | "on" | "off" | "none")
}
