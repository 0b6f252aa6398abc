//! Whether what was printed is what a page shows.

/// Stands for any text, and on a line of its own for any lines.
const ANY: &str = "…";

/// Returns whether `printed` is what is `shown`.
pub(crate) fn is_shown(shown: &[String], printed: &[String], numbers_vary: bool) -> bool {
    let normal = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| normal(line.trim_end(), numbers_vary)).collect()
    };
    fits(&normal(shown), &normal(printed))
}

/// Returns after how many lines of `printed` all that is `shown` has appeared.
pub(crate) fn appeared(shown: &[String], printed: &[String], numbers_vary: bool) -> Option<usize> {
    let mut pattern = vec![ANY.to_owned()];
    pattern.extend_from_slice(shown);
    (0..=printed.len()).find(|end| is_shown(&pattern, &printed[..*end], numbers_vary))
}

fn fits(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first.trim() == ANY => {
            (0..=printed.len()).any(|skipped| fits(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| fits_line(first, line) && fits(rest, others)),
    }
}

fn fits_line(shown: &str, printed: &str) -> bool {
    let Some((begin, rest)) = shown.split_once(ANY) else { return shown == printed };
    let Some(printed) = printed.strip_prefix(begin) else { return false };
    let starts = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
    starts.into_iter().any(|at| fits_line(rest, &printed[at..]))
}

/// Returns a line with each time as the same word, and each number if they vary.
fn normal(line: &str, numbers_vary: bool) -> String {
    const SHAPES: [&str; 2] = ["dddd-dd-ddTdd:dd:dd", "aaa, dd aaa dddd dd:dd:dd GMT"];
    let mut normal = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if let Some(shape) = SHAPES.iter().find(|shape| has_shape(rest, shape)) {
            normal.push_str("<time>");
            rest = &rest[shape.len()..];
            // A fraction, and the zone.
            rest = rest
                .strip_prefix('.')
                .map_or(rest, |fraction| fraction.trim_start_matches(is_digit));
            continue;
        }
        if numbers_vary && is_digit(first) {
            normal.push('#');
            rest = rest.trim_start_matches(is_digit);
            continue;
        }
        normal.push(first);
        rest = &rest[first.len_utf8()..];
    }
    normal
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn has_shape(text: &str, shape: &str) -> bool {
    let fits = |(byte, shape): (u8, u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        b'a' => byte.is_ascii_alphabetic(),
        other => byte == other,
    };
    text.len() >= shape.len() && text.bytes().zip(shape.bytes()).all(fits)
}

#[cfg(test)]
fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_varies_matches_and_nothing_else() {
    let fits = |shown: &str, printed: &str| is_shown(&lines(shown), &lines(printed), false);
    for (shown, printed, expected) in [
        ("a\nb", "a\nb", true),
        ("a", "a\nb", false),
        ("a\nb", "a", false),
        ("", "", true),
        ("", "a", false),
        ("…", "", true),
        ("a\n…\nz", "a\nz", true),
        ("a\n…\nz", "a\nb\nc\nz", true),
        ("a\n…\nz", "a\nb\nc", false),
        ("200 200 … 429", "200 200 200 429 429", true),
        ("200 200 …", "200 429 200", false),
        ("at 2026-11-21T11:37:16.894642Z x", "at 2027-01-02T00:00:00Z x", true),
        ("date: Sat, 21 Nov 2026 11:37:16 GMT", "date: Sun, 22 Nov 2026 01:00:00 GMT", true),
        ("x 12", "x 13", false),
    ] {
        assert_eq!(fits(shown, printed), expected, "{shown:?} {printed:?}");
    }
    assert!(is_shown(&lines("x 12, 3.5"), &lines("x 7, 100.25"), true));
    assert!(!is_shown(&lines("x 12"), &lines("y 12"), true));
}

#[test]
fn what_appeared_ends_at_its_last_line() {
    let printed = lines("a\nb 1\nc\nb 2\nd");
    assert_eq!(appeared(&lines("b …"), &printed, false), Some(2));
    assert_eq!(appeared(&lines("c\n…\nd"), &printed, false), Some(5));
    assert_eq!(appeared(&lines("e"), &printed, false), None);
}
