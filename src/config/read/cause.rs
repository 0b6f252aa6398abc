//! The slip behind a syntax error. The parser names the place where it cannot go on, which may be
//! many lines behind the tab, the quote or the bracket that it stumbles over.

/// A slip, and the byte where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Cause {
    /// A tab in the indentation.
    Tab(usize),
    /// A quote that is not closed on its line, and by chance at most later.
    Quote(usize),
    /// A bracket that is not closed before the next key.
    Bracket(usize),
}

/// Returns the slip behind an error at the byte `error` of `text`, if one is found.
pub(in crate::config) fn cause(text: &str, error: usize) -> Option<Cause> {
    let mut scan = Scan { text, error, at: 0, brackets: Vec::new() };
    // The parser gives up before a tab that begins the next line.
    let last = scan.next_line(error);
    while scan.at < text.len() && scan.at <= last {
        let cause = scan.line();
        if cause.is_some() {
            return cause;
        }
    }
    None
}

/// A walk through the lines of a text, as far as the error.
struct Scan<'t> {
    text: &'t str,
    error: usize,
    /// Where the walk has come to.
    at: usize,
    /// Those that are open.
    brackets: Vec<usize>,
}

impl Scan<'_> {
    /// Goes through one line, or several where a quoted text or a block of text spans them.
    fn line(&mut self) -> Option<Cause> {
        let start = self.at;
        let indent = self.text[start..].bytes().take_while(|b| *b == b' ').count();
        let blank = self.text[start..].bytes().take_while(|b| matches!(b, b' ' | b'\t')).count();
        let begin = start + blank;
        let rest = &self.text[begin..self.end_of_line(begin)];
        if rest.trim_end().is_empty() || rest.starts_with('#') {
            self.at = self.next_line(start);
            return None;
        }
        if let Some(open) = self.open_before(start, indent) {
            return Some(Cause::Bracket(open));
        }
        if blank > indent && self.brackets.is_empty() {
            return Some(Cause::Tab(start + indent));
        }
        self.at = begin;
        self.tokens(indent)
    }

    /// Returns the bracket that is open where the error's line begins a new key.
    fn open_before(&self, start: usize, indent: usize) -> Option<usize> {
        let open = *self.brackets.last()?;
        let is_here = (start..=self.end_of_line(start)).contains(&self.error);
        let line = self.text[..open].rfind('\n').map_or(0, |at| at + 1);
        let outer = self.text[line..].bytes().take_while(|b| *b == b' ').count();
        let is_closing = self.text[start + indent..].starts_with([']', '}']);
        (is_here && indent <= outer && !is_closing).then_some(open)
    }

    /// Goes through the rest of a line.
    fn tokens(&mut self, indent: usize) -> Option<Cause> {
        let bytes = self.text.as_bytes();
        // Whether a value may begin here, so that a quote opens a text.
        let mut begins = true;

        while self.at < bytes.len() && bytes[self.at] != b'\n' {
            let at = self.at;
            let byte = bytes[at];
            let follows_blank = at == 0 || bytes[at - 1].is_ascii_whitespace();
            let before_blank = bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace);
            let in_flow = !self.brackets.is_empty();
            self.at += 1;

            match byte {
                b'#' if follows_blank => self.at = self.end_of_line(at),
                b'"' | b'\'' if begins => {
                    if let Some(cause) = self.quoted(at, byte) {
                        return Some(cause);
                    }
                    begins = false;
                }
                b'|' | b'>' if begins && !in_flow => {
                    self.skip_block(indent);
                    return None;
                }
                b'[' | b'{' if begins => self.brackets.push(at),
                b']' | b'}' if in_flow => {
                    self.brackets.pop();
                    begins = false;
                }
                b',' if in_flow => begins = true,
                b':' | b'-' | b'?' if before_blank => begins = true,
                b' ' | b'\t' | b'\r' => {}
                b'&' | b'!' if begins => {
                    let word = self.text[at..].find(|c: char| c.is_whitespace());
                    self.at = word.map_or(bytes.len(), |length| at + length);
                }
                _ => begins = false,
            }
        }

        self.at = self.next_line(self.at);
        None
    }

    /// Goes behind the text that the quote at `open` opens. Returns the quote if it is not closed,
    /// or only by what looks like another one's opening.
    fn quoted(&mut self, open: usize, quote: u8) -> Option<Cause> {
        let Some(close) = self.close(open, quote) else { return Some(Cause::Quote(open)) };
        let after = self.text[close + 1..self.end_of_line(close)].trim_start();
        let goes_on = after.is_empty() || after.starts_with(['#', ',', ']', '}', ':']);
        let spans_lines = self.text[open..close].contains('\n');
        self.at = close + 1;
        let is_slip = spans_lines && (!goes_on || (open..=close).contains(&self.error));
        is_slip.then_some(Cause::Quote(open))
    }

    /// Returns where the quote that opens at `open` is closed.
    fn close(&self, open: usize, quote: u8) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let mut at = open + 1;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if quote == b'"' => at += 2,
                byte if byte == quote => {
                    let is_doubled = quote == b'\'' && bytes.get(at + 1) == Some(&quote);
                    if !is_doubled {
                        return Some(at);
                    }
                    at += 2;
                }
                _ => at += 1,
            }
        }
        None
    }

    /// Goes behind a block of text, whose lines are indented by more than `indent`.
    fn skip_block(&mut self, indent: usize) {
        self.at = self.next_line(self.at);
        while self.at < self.text.len() {
            let line = &self.text[self.at..self.end_of_line(self.at)];
            let deep = line.bytes().take_while(|b| *b == b' ').count() > indent;
            if !deep && !line.trim().is_empty() {
                return;
            }
            self.at = self.next_line(self.at);
        }
    }

    fn end_of_line(&self, at: usize) -> usize {
        self.text[at..].find('\n').map_or(self.text.len(), |length| at + length)
    }

    fn next_line(&self, at: usize) -> usize {
        (self.end_of_line(at) + 1).min(self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slip_is_found_though_the_parser_stumbles_later() {
        for (text, error, expected) in [
            ("a:\n  b: 1\n\tc: 2\n", "1\n", Some(Cause::Tab(10))),
            ("a:\n  b: 1\n  \tc: 2\n", "c", Some(Cause::Tab(12))),
            ("a: \"x\nb: \"y\"\nc: 1\n", "y", Some(Cause::Quote(3))),
            ("a: 'x\nb: 1\n", "b", Some(Cause::Quote(3))),
            ("- {a: 'x, b: c}\n- 'f'\n", "f", Some(Cause::Quote(6))),
            ("a: [{ b: 1 }\nc: 2\n", ": 2", Some(Cause::Bracket(3))),
            ("a:\n  - [x,\n  b: 2\n", ": 2", Some(Cause::Bracket(7))),
        ] {
            let at = text.rfind(error).unwrap();
            assert_eq!(cause(text, at), expected, "{text:?}");
        }
    }

    #[test]
    fn what_yaml_allows_is_no_slip() {
        for text in [
            "a: it's\nb: say \"x\nc: *q\n",
            "a: \"one\n  two\"\nb: 'it''s \"'\nc: *q\n",
            "a: [\n\t1,\n  2\n]\nc: *q\n",
            "a: |\n  say \"x\n\n  \tit's [ {\nc: *q\n",
            "a: 1 # it's \"\n\t# a tab\n\t\nc: *q\n",
            "a: &x \"\\\"\"\nb: !!str 'y'\nc: *q\n",
            "a: {b: /x, c: [1, {d: 'e'}]}\nc: *q\n",
        ] {
            assert_eq!(cause(text, text.rfind('*').unwrap()), None, "{text:?}");
        }
    }
}
