//! The time for which a server announces to keep an idle connection.

use crate::http1::{self, FieldList};
use core::time::Duration;
use http::HeaderName;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// The time before the server's own limit at which a connection is given up: a request that is on its
/// way when the server closes is lost, and a POST cannot be sent again.
const MARGIN: Duration = Duration::from_secs(1);

/// Returns the time for which a connection may be kept after a response with these `headers`, if they
/// have `Keep-Alive: timeout=SECONDS`. Of several, the shortest counts.
pub(crate) fn announced(headers: &FieldList) -> Option<Duration> {
    let lines = headers.get_all(&KEEP_ALIVE).filter_map(http1::text);
    let parameters = lines.flat_map(|line| line.split(',')).filter_map(|item| item.split_once('='));
    let seconds = parameters
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))
        .filter_map(|(_, value)| value.trim().trim_matches('"').parse::<u32>().ok())
        .min()?;
    let whole = Duration::from_secs(seconds.into());
    Some(whole.saturating_sub(MARGIN.min(whole / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_connection_is_given_up_before_the_server_closes_it() {
        for (lines, millis) in [
            (&["timeout=5"][..], Some(4000)),
            (&["max=100, Timeout = \"15\""], Some(14_000)),
            (&["timeout=60", "timeout=3"], Some(2000)),
            (&["timeout=1"], Some(500)),
            (&["timeout=0"], Some(0)),
            (&["timeout=4294967295"], Some(4_294_967_294_000)),
            (&["timeout=-1"], None),
            (&["timeout=soon", "max=5"], None),
            (&["timeout"], None),
            (&[], None),
        ] {
            let lines =
                lines.iter().map(|line| (KEEP_ALIVE.clone(), HeaderValue::from_static(line)));
            let expected = millis.map(Duration::from_millis);
            let headers: FieldList = lines.collect();
            assert_eq!(announced(&headers), expected);
        }
    }
}
