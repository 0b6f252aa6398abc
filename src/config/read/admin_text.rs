//! The text of the key `admin` in a file that is broken elsewhere.

/// The key.
const KEY: &str = "admin";

/// The longest text of the key that is looked at, in bytes.
const MOST: usize = 16 * 1024;

/// The most times that the key may be written, such as by both sides of a conflict.
const MOST_SECTIONS: usize = 4;

/// The most shorter texts that are tried if the key's own text breaks off.
const MOST_CUTS: usize = 64;

/// A text that may be YAML, with the key `admin` alone.
pub(in crate::config) struct AdminText {
    pub text: String,
    /// True if it has all that the file has of the key.
    pub is_whole: bool,
}

/// Returns texts that may be YAML with the key `admin` alone, the most complete one first.
///
/// The lines are looked at, not the values: a bracket that is never closed, a tab, or an end in the
/// middle of a value may stand before the key or behind it.
pub(in crate::config) fn admin_texts(text: &str) -> Vec<AdminText> {
    let sections = match root(text) {
        None => return Vec::new(),
        Some(Root::Block { indent }) => in_block(text, indent),
        Some(Root::Flow) => in_flow(text),
    };
    sections.into_iter().flat_map(|section| whole_and_cut(&section)).collect()
}

/// The form of the file's outermost map.
enum Root {
    /// Keys on lines of their own, this far from the margin.
    Block { indent: usize },
    /// Keys within braces, as in JSON.
    Flow,
}

fn root(text: &str) -> Option<Root> {
    let first = text.lines().find(|line| is_content(line) && !line.starts_with(['%', '-']))?;
    if first.trim_start().starts_with('{') {
        return Some(Root::Flow);
    }
    Some(Root::Block { indent: indent(first) })
}

/// Reports whether a line has more than blanks and a comment.
fn is_content(line: &str) -> bool {
    let rest = line.trim_start();
    !rest.is_empty() && !rest.starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Reports whether `text` begins with the key and its `:`.
fn begins_with_key(text: &str) -> bool {
    let quotes = [text.strip_prefix('"'), text.strip_prefix('\'')];
    let quote = quotes.iter().position(Option::is_some);
    let name = quotes.into_iter().flatten().next().unwrap_or(text);
    let Some(rest) = name.strip_prefix(KEY) else { return false };
    let rest = match quote {
        None => Some(rest),
        Some(at) => rest.strip_prefix(['"', '\''][at]),
    };
    let value = rest.and_then(|rest| rest.trim_start_matches(' ').strip_prefix(':'));
    value.is_some_and(|value| {
        value.is_empty() || quote.is_some() || value.starts_with([' ', '\t', '\r', '\n', '{'])
    })
}

/// Returns the lines of the key with those that are indented further, for each time it is written.
fn in_block(text: &str, outer: usize) -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in text.split_inclusive('\n') {
        let is_outer = indent(line) <= outer && is_content(line);
        if is_outer && !line.trim_start().starts_with(['}', ']']) {
            is_inside = begins_with_key(line.trim_start());
            if is_inside && sections.len() == MOST_SECTIONS {
                break;
            }
            if is_inside {
                sections.push(String::new());
            }
        }
        if let Some(section) = sections.last_mut().filter(|_| is_inside) {
            push_line(section, line, outer);
        }
    }
    sections
}

/// Adds a line, with spaces in place of tabs before its first word.
fn push_line(section: &mut String, line: &str, outer: usize) {
    if section.len() + line.len() > MOST {
        return;
    }
    let (blanks, rest) = line.split_at(indent(line));
    let blanks = blanks.replace('\t', "  ");
    section.push_str(blanks.get(outer..).unwrap_or(&blanks));
    section.push_str(rest);
}

/// Returns the key with its value, of a map within braces.
fn in_flow(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut begin = None;
    let mut is_start = false;
    for (at, c) in text.char_indices() {
        if is_start && depth == 1 && begin.is_none() && begins_with_key(&text[at..]) {
            begin = Some(at);
        }
        is_start = (is_start && c.is_whitespace()) || (quote.is_none() && matches!(c, '{' | ','));
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth = depth.saturating_sub(1),
            (Some(_) | None, _) => {}
        }
        let has_ended = depth == 0 || (depth == 1 && quote.is_none() && c == ',');
        if let Some(begin) = begin.filter(|begin| has_ended && at > *begin) {
            return vec![format!("{{{}}}", bounded(&text[begin..at]))];
        }
    }
    begin.map(|begin| format!("{{{}", bounded(&text[begin..]))).into_iter().collect()
}

/// Returns the beginning of a text, up to the bound.
fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST)]
}

/// Returns a section, then its beginnings up to a comma or the end of a line, with the brackets that
/// these leave open closed. A beginning never ends within a value.
fn whole_and_cut(section: &str) -> Vec<AdminText> {
    let ends = section.rmatch_indices([',', '\n']).map(|(at, _)| at);
    let beginnings = ends.take(MOST_CUTS).map(|at| closed(&section[..at]));
    let beginnings = beginnings.map(|text| AdminText { text, is_whole: false });
    let whole = AdminText { text: section.to_owned(), is_whole: true };
    core::iter::once(whole).chain(beginnings).collect()
}

fn closed(text: &str) -> String {
    let mut open = Vec::new();
    for c in text.chars() {
        match c {
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => drop(open.pop()),
            _ => {}
        }
    }
    text.chars().chain(open.into_iter().rev()).collect()
}
