//! Sticky sessions: a cookie names the server that a client got before.
//!
//! Its value is a keyed fingerprint of the upstream's name and the server's address: without the key, it
//! tells nothing of the address, and cannot be made up.

use super::balance::Picked;
use crate::{
    config::{Server, Upstream},
    flow::Instant,
    http1::FieldList,
    route::{self, Seed},
};
use http::{HeaderValue, header::SET_COOKIE};
use smallvec::SmallVec;
use std::sync::Arc;

/// The length of a value: 64 bits in hexadecimal digits.
const DIGITS: usize = 16;

/// Returns the value of the cookie `name` in a request, if it can be one of flowgate's.
#[inline(never)]
pub(crate) fn wanted(name: &str, headers: &FieldList) -> Option<u64> {
    let value = route::cookie(headers.into(), name).ok()?;
    let text = str::from_utf8(value).ok()?;
    let is_own = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_own { u64::from_str_radix(text, 16).ok() } else { None }
}

/// Returns the server of `upstream` that a cookie with this value, by `seed`, names, unless it gets no requests at
/// `now`. One that returns slowly gets those of its clients at once.
#[inline(never)]
pub(crate) fn find(seed: &Seed, upstream: &Upstream, wanted: u64, now: Instant) -> Option<Picked> {
    let members = upstream.members();
    let is_wanted = |server: &Arc<Server>| value(seed, upstream, server) == wanted;
    let place = members.servers.iter().position(is_wanted)?;
    let server = Arc::clone(members.servers.get(place)?);
    // A backup keeps its clients only while no other server gets requests.
    let gets = |other: &Arc<Server>| !other.is_backup && !other.health.is_out();
    if server.is_backup && members.servers.iter().any(gets) {
        return None;
    }
    let slow_start = upstream.options.slow_start;
    let gets_requests = !server.health.is_out() || server.health.admits(now, slow_start, |_| 0);
    let is_other_left = members.servers.len() > 1;
    gets_requests.then_some(Picked { place, server, is_other_left })
}

/// Has the client of a response by `server` come back to it, unless its cookie had this value already.
#[inline(never)]
pub(crate) fn write(
    headers: &mut FieldList,
    seed: &Seed,
    upstream: &Upstream,
    server: &Server,
    sent: Option<u64>,
    is_secure: bool,
) {
    let Some(name) = &upstream.options.sticky else { return };
    let value = value(seed, upstream, server);
    if sent == Some(value) {
        return;
    }
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!("{name}={value:016x}; Path=/; HttpOnly; SameSite=Lax{secure}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        headers.append(SET_COOKIE, cookie);
    }
}

/// Returns what stands for a server of an upstream.
fn value(seed: &Seed, upstream: &Upstream, server: &Server) -> u64 {
    // A name has at most 64 bytes.
    let mut text: SmallVec<[u8; 72]> = SmallVec::from_slice(&server.hash.to_le_bytes());
    text.extend_from_slice(upstream.name.as_bytes());
    seed.hash(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::COOKIE;

    #[test]
    fn only_a_value_of_flowgates_own_form_is_taken() {
        for (cookie, expected) in [
            ("server=00000000000000ff", Some(255)),
            ("a=b; server=00000000000000fF", Some(255)),
            ("server=0000000000000ff", None),
            ("server=00000000000000fff", None),
            ("server=+0000000000000ff", None),
            ("server=10.0.0.1:8000000", None),
            ("server=00000000000000ff; server=00000000000000ff", None),
            ("servers=00000000000000ff", None),
            ("server=", None),
        ] {
            let mut headers = FieldList::default();
            headers.append(COOKIE, HeaderValue::from_static(cookie));
            assert_eq!(wanted("server", &headers), expected, "{cookie}");
        }
    }
}
