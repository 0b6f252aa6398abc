//! Paths as other gateways write them: which key of a match, and which value, is meant.

/// Returns what to write in place of `text`, which is no path, as in `path_prefix: /api` for
/// `/api/*`.
pub(super) fn meant_path(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(pattern) = text.strip_prefix("(?i)") {
        return Some(regex(pattern, "(?i)"));
    }
    if text.starts_with('^') && !text.starts_with("^~") {
        return Some(regex(text, ""));
    }
    modifier(text).or_else(|| call(text)).or_else(|| stars(text))
}

/// Reads the modifiers of nginx's `location`.
fn modifier(text: &str) -> Option<String> {
    for (sign, flags) in [("~*", "(?i)"), ("~", "")] {
        if let Some(pattern) = text.strip_prefix(sign) {
            return Some(regex(pattern.trim(), flags));
        }
    }
    let is_path = |path: &&str| path.starts_with('/') && !path.contains(char::is_whitespace);
    if let Some(path) = text.strip_prefix("^~").map(str::trim).filter(is_path) {
        return Some(format!("path_prefix: {path}"));
    }
    let path = text.strip_prefix('=').map(str::trim).filter(is_path)?;
    Some(format!("path: {path}"))
}

/// Reads matchers such as Traefik's ``PathPrefix(`/api`)`` and HAProxy's `path_beg /api`.
fn call(text: &str) -> Option<String> {
    let end = text.find(['(', ' '])?;
    let (name, value) = text.split_at(end);
    let value = value.trim_matches(['(', ')', ' ', '`', '"', '\'']);
    let key = match name.to_ascii_lowercase().as_str() {
        "pathprefix" | "path_beg" | "path_dir" => "path_prefix",
        "path" => "path",
        "pathregexp" | "path_reg" => return Some(regex(value, "")),
        _ => return None,
    };
    let is_path = value.starts_with('/') && !value.contains([' ', '`', '(', '*', '{']);
    is_path.then(|| format!("{key}: {value}"))
}

/// Reads paths with stars: `/api/*`, `/api/*/items`, `*.php`.
fn stars(text: &str) -> Option<String> {
    if !text.contains('*') || text.contains(['{', '}', '\\', '(', '[', '$']) {
        return None;
    }
    let whole = format!("/{}", text.trim_start_matches('/'));
    let begin = whole.trim_end_matches('*');
    if !begin.contains('*') && whole != begin {
        // A star at the end stands for all below.
        let prefix = begin.trim_end_matches('/');
        return Some(format!("path_prefix: {}", if prefix.is_empty() { "/" } else { prefix }));
    }
    if whole.split('/').all(|segment| segment == "*" || !segment.contains('*')) {
        return Some(format!("path: '{}'", numbered(&whole)));
    }
    let pattern = whole.replace('.', "[.]").replace("**", "*").replace('*', ".*");
    let begin = if pattern.starts_with("/.*") { &pattern[1..] } else { &pattern };
    Some(format!("path_regex: '{begin}'"))
}

/// Returns a template with a parameter for each segment that is a star.
fn numbered(path: &str) -> String {
    let mut count = 0;
    let segments = path.split('/').map(|segment| {
        if segment != "*" {
            return segment.to_owned();
        }
        count += 1;
        if count == 1 { "{id}".to_owned() } else { format!("{{id{count}}}") }
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Returns a pattern that other gateways search for as one for the whole path.
fn regex(pattern: &str, flags: &str) -> String {
    let pattern = pattern.trim_matches(['"', '\'']);
    let begin = pattern.strip_prefix('^').map_or_else(|| format!(".*{pattern}"), str::to_owned);
    let is_end = begin.ends_with('$') && !begin.ends_with("\\$");
    let whole = if is_end { begin[..begin.len() - 1].to_owned() } else { format!("{begin}.*") };
    let whole = whole.replace(".*.*", ".*").replace('\'', "''");
    format!("path_regex: '{flags}{whole}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_other_gateways_are_known() {
        for (text, expected) in [
            ("~ ^/api", "path_regex: '/api.*'"),
            ("~ ^/api/v[0-9]+$", "path_regex: '/api/v[0-9]+'"),
            ("~* \\.(jpg|png)$", "path_regex: '(?i).*\\.(jpg|png)'"),
            ("~^/api", "path_regex: '/api.*'"),
            ("^/api/.*", "path_regex: '/api/.*'"),
            ("(?i)^/api$", "path_regex: '(?i)/api'"),
            ("= /health", "path: /health"),
            ("=/health", "path: /health"),
            ("^~ /static", "path_prefix: /static"),
            ("/api/*", "path_prefix: /api"),
            ("/api/**", "path_prefix: /api"),
            ("/api*", "path_prefix: /api"),
            ("/*", "path_prefix: /"),
            ("*", "path_prefix: /"),
            ("api/*", "path_prefix: /api"),
            ("/users/*/items", "path: '/users/{id}/items'"),
            ("/a/*/b/*/c", "path: '/a/{id}/b/{id2}/c'"),
            ("*.php", "path_regex: '.*[.]php'"),
            ("/img/*.png", "path_regex: '/img/.*[.]png'"),
            ("PathPrefix(`/api`)", "path_prefix: /api"),
            ("Path(`/api`)", "path: /api"),
            ("path_beg /api", "path_prefix: /api"),
        ] {
            assert_eq!(meant_path(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "/api", "api", "/a b", "/a/{id}", "@named", "=", "^~", "/a/{*rest}"] {
            assert_eq!(meant_path(text), None, "{text}");
        }
    }
}
