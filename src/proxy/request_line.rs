//! Where requests begin in a client's bytes, and the characters in a target that hyper's parser of
//! URIs does not take.
//!
//! Only bytes that are certain to be a request's line are changed. hyper asks for bytes of a head
//! when no request is under way and no body is left to read. Then a request begins with the next
//! byte if the last ones were an empty line, as hyper would otherwise have had a whole head before
//! it asked; or if exactly the body's length has come since the end of the head. Where neither
//! holds, as within pipelined requests, nothing is changed, and hyper refuses such a target.

use super::activity::Activity;
use std::io::BufRead as _;

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Heads {
    place: Place,
    /// The first byte of the request's line.
    first: u8,
    /// The last three bytes that came.
    last: [u8; 3],
    /// How many have come since the end of the first head behind the last certain beginning, if
    /// that was seen.
    beyond: Option<u64>,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Beginning,
    Method,
    Path,
    Query,
    /// The rest of the line.
    Version,
    /// What follows the line.
    Behind,
}

impl Heads {
    /// Notes what was read. Returns what hyper shall read in its place, if that is not the same.
    pub(super) fn read(&mut self, bytes: &[u8], activity: &Activity) -> Option<Vec<u8>> {
        if self.place == Place::Behind && self.is_at_beginning(activity) {
            self.place = Place::Beginning;
        }
        let rewritten = if self.place == Place::Behind {
            self.beyond = self.beyond.map(|count| count + bytes.len() as u64);
            None
        } else {
            self.read_line(bytes)
        };
        for byte in &bytes[bytes.len().saturating_sub(3)..] {
            self.last = [self.last[1], self.last[2], *byte];
        }
        rewritten
    }

    fn is_at_beginning(&self, activity: &Activity) -> bool {
        let [_, .., before, last] = self.last;
        let is_empty_line = self.last == *b"\n\r\n" || [before, last] == *b"\n\n";
        activity.awaits_head()
            && (is_empty_line || self.beyond.is_some_and(|count| count == activity.length()))
    }

    /// Reads bytes of which the first belongs to a request's line, or to empty lines before it.
    fn read_line(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let is_blank = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let is_beginning = self.place == Place::Beginning;
        let blank = if is_beginning { bytes.iter().take_while(is_blank).count() } else { 0 };
        let (blank, rest) = bytes.split_at(blank);
        if is_beginning {
            self.first = *rest.first()?;
        }
        let (line, rest) = rest.split_at(line_length(rest));
        let is_whole = line.last() == Some(&b'\n');
        let odd = line.iter().filter(|byte| matches!(byte, b'"' | b'<' | b'>' | b'`')).count();
        let rewritten = if odd == 0 && is_whole {
            None
        } else {
            // By how much it grows at the most.
            let mut written = Vec::with_capacity(bytes.len() + 2 * odd);
            written.extend_from_slice(blank);
            for byte in line {
                self.write(*byte, &mut written);
            }
            written.extend_from_slice(rest);
            (odd > 0).then_some(written)
        };
        if is_whole {
            self.place = Place::Behind;
            // GET and HEAD hardly ever have a body. Their heads need not be looked through.
            let is_searched = !matches!(self.first, b'G' | b'H');
            let end = if is_searched { head_end(rest) } else { None };
            self.beyond = end.map(|end| (rest.len() - end) as u64);
        }
        rewritten
    }

    /// Writes a byte of the line as hyper takes it.
    fn write(&mut self, byte: u8, written: &mut Vec<u8>) {
        let (next, is_odd) = match (self.place, byte) {
            (Place::Beginning, _) => (Place::Method, false),
            (Place::Method, b' ') => (Place::Path, false),
            // A fragment, which hyper drops, does not matter.
            (Place::Path | Place::Query, b' ' | b'#') => (Place::Version, false),
            (Place::Path, b'?') => (Place::Query, false),
            (Place::Path, _) => (Place::Path, matches!(byte, b'<' | b'>' | b'`')),
            (Place::Query, _) => (Place::Query, matches!(byte, b'"' | b'<' | b'>')),
            (place @ (Place::Method | Place::Version | Place::Behind), _) => (place, false),
        };
        self.place = next;
        if is_odd {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            written.extend_from_slice(&[b'%', high, low]);
        } else {
            written.push(byte);
        }
    }
}

/// Returns the length of the first line with its end, or of all if there is none.
fn line_length(mut bytes: &[u8]) -> usize {
    // Much faster than a walk. From memory it does not fail.
    bytes.skip_until(b'\n').unwrap_or_default()
}

/// Returns where the head ends whose lines, but for the first, `bytes` begins with.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let rest = bytes.get(end..)?;
        let line = rest.get(..line_length(rest))?;
        if line.last() != Some(&b'\n') {
            return None;
        }
        end += line.len();
        if matches!(line, b"\n" | b"\r\n") {
            return Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, meter::Counters};
    use proptest::{collection::vec, prelude::*, sample::select};
    use std::sync::Arc;

    fn activity() -> Arc<Activity> {
        let counters = Arc::<Counters>::default();
        Activity::new(&Clock::start(), counters.connection(1).expect("the first"))
    }

    /// What hyper is handed of one request that comes in these parts.
    fn read(heads: &mut Heads, activity: &Activity, parts: &[&str]) -> String {
        let parts = parts.iter().map(|part| {
            let rewritten = heads.read(part.as_bytes(), activity);
            rewritten.unwrap_or_else(|| part.as_bytes().to_vec())
        });
        String::from_utf8(parts.collect::<Vec<_>>().concat()).expect("text")
    }

    /// A request comes, has a body of `length`, and is answered.
    fn serve(activity: &Activity, length: Option<u64>) {
        activity.on_request();
        activity.on_length(length);
        activity.on_answered(crate::flow::Instant::from_nanos(1));
    }

    #[tokio::test]
    async fn only_the_target_is_written_anew_however_it_is_cut() {
        let head = "\r\nGET /a\"<`?b=\"<`>#\"< HTTP/1.1\r\nhost: \"a\"\r\nx: <>\r\n\r\n";
        let expected =
            "\r\nGET /a\"%3C%60?b=%22%3C`%3E#\"< HTTP/1.1\r\nhost: \"a\"\r\nx: <>\r\n\r\n";
        for cut in 0..head.len() {
            let (one, other) = head.split_at(cut);
            let found = read(&mut Heads::default(), &activity(), &[one, other]);
            assert_eq!(found, expected, "cut at {cut}");
        }
        let bytes: Vec<_> = head.split_inclusive(|_: char| true).collect();
        assert_eq!(read(&mut Heads::default(), &activity(), &bytes), expected);
        for odd in ["G\"T / HTTP/1.1\r\n", "GET /a \"\r\n", "GET / HTTP/1.1\r\n<\">: 1\r\n"] {
            assert_eq!(read(&mut Heads::default(), &activity(), &[odd]), odd);
        }
    }

    #[tokio::test]
    async fn a_body_is_left_as_it_is_and_what_follows_it_is_a_request() {
        let (next, anew) = ("GET /?\" HTTP/1.1\r\n\r\n", "GET /?%22 HTTP/1.1\r\n\r\n");
        let body = "POST /?\" HTTP/1.1\r\n";
        for (parts, length) in [
            (&["POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\n", "<\">\n"][..], Some(4)),
            (&["POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\n<\">", "\n"], Some(4)),
            (&["POST / HTTP/1.1\ncontent-length: 4\n\n<\">\n"], Some(4)),
            (&["PUT / HTTP/1.1\r\ncontent-length: 19\r\n\r\n", body], Some(19)),
            (&["PUT / HTTP/1.1\r\nx: chunked\r\n\r\n", "1\r\n\"\r\n0\r\n\r\n"], None),
            (&["GET / HTTP/1.1\r\ncontent-length: 4\r\n\r\n", "\r\n\r\n"], Some(4)),
        ] {
            let (mut heads, activity) = (Heads::default(), activity());
            assert_eq!(read(&mut heads, &activity, &parts[..1]), parts[0]);
            activity.on_request();
            activity.on_length(length);
            assert_eq!(read(&mut heads, &activity, &parts[1..]), parts[1..].concat());
            activity.on_answered(crate::flow::Instant::from_nanos(1));
            assert_eq!(read(&mut heads, &activity, &[next]), anew, "behind {parts:?}");
        }
    }

    #[tokio::test]
    async fn where_it_is_not_certain_that_a_request_begins_nothing_is_changed() {
        let (mut heads, activity) = (Heads::default(), activity());
        let pipelined = "GET / HTTP/1.1\r\n\r\nGET /?\" HTT";
        assert_eq!(read(&mut heads, &activity, &[pipelined]), pipelined);
        serve(&activity, Some(0));
        assert_eq!(read(&mut heads, &activity, &["P/1.1\r\n\"\r\n"]), "P/1.1\r\n\"\r\n");
        let (mut heads, upload) = (Heads::default(), activity);
        let next = "GET /?\" HTTP/1.1\r\n";
        read(&mut heads, &upload, &["POST / HTTP/1.1\r\n\r\n"]);
        upload.on_request();
        assert_eq!(read(&mut heads, &upload, &[next]), next, "a tunnel, or a body");
        upload.on_unread();
        upload.on_answered(crate::flow::Instant::from_nanos(1));
        assert_eq!(read(&mut heads, &upload, &[next]), next, "the rest of a body");
    }

    /// A request with the length of its body, and how hyper shall read it.
    fn request() -> impl Strategy<Value = (String, u64, String)> {
        let text = || vec(select(vec!["a", "\"", "<", "\n", "\r\n", "\r\n\r\n"]), 0..6);
        let method = select(vec!["GET", "POST", "DELETE"]);
        (method, select(vec!["\"", "<", "b"]), text()).prop_map(|(method, odd, body)| {
            let body = body.concat();
            let encoded = odd.replace('"', "%22").replace('<', "%3C");
            let of = |odd: &str| {
                format!(
                    "{method} /?{odd} HTTP/1.1\r\nx: \"\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            };
            (of(odd), body.len() as u64, of(&encoded))
        })
    }

    proptest! {
        /// hyper is imitated: it reads until it has a head, then until it has the body.
        #[test]
        fn only_lines_of_requests_are_changed(
            requests in vec(request(), 1..6),
            cuts in vec(1_usize..60, 1..40),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let _guard = runtime.as_ref().expect("a runtime").enter();
            let (mut heads, activity) = (Heads::default(), activity());
            let mut cuts = cuts.iter().cycle();
            for (sent, length, expected) in &requests {
                let (mut seen, mut rest, mut is_served) = (Vec::new(), sent.as_bytes(), false);
                while !rest.is_empty() {
                    let (part, others) = rest.split_at((*cuts.next().expect("endless")).min(rest.len()));
                    rest = others;
                    let rewritten = heads.read(part, &activity);
                    seen.extend(rewritten.unwrap_or_else(|| part.to_vec()));
                    if !is_served && seen.windows(4).any(|it| it == b"\r\n\r\n") {
                        is_served = true;
                        activity.on_request();
                        activity.on_length(Some(*length));
                    }
                }
                activity.on_answered(crate::flow::Instant::from_nanos(1));
                let seen = String::from_utf8(seen).expect("text");
                // Where the head came in parts it may not be known where its body ends.
                let is_certain = seen == *expected;
                prop_assert!(is_certain || seen == *sent, "{sent:?} became {seen:?}");
            }
        }
    }
}
