//! Keys as other gateways write them: which part of flowgate's key is meant.

/// Words that stand for a part without a name, in lower case and without `$`, braces and `%`.
const WORDS: &[(&str, &[&str])] = &[
    (
        "client_ip",
        &[
            "address",
            "addr",
            "binary_remote_addr",
            "client",
            "client_address",
            "client_addr",
            "client-ip",
            "clientip",
            "downstream_remote_address",
            "forwarded",
            "http_cf_connecting_ip",
            "http_x_forwarded_for",
            "http_x_real_ip",
            "ip",
            "ip_address",
            "ipaddress",
            "ipstrategy",
            "per_ip",
            "proxy_protocol_addr",
            "realip_remote_addr",
            "remote",
            "remote_address",
            "remote_addr",
            "remote_host",
            "remote_ip",
            "remoteaddr",
            "source_ip",
            "sourceip",
            "src",
            "x-forwarded-for",
            "x-real-ip",
            "x_forwarded_for",
            "x_real_ip",
        ],
    ),
    (
        "host",
        &[
            ":authority",
            "authority",
            "domain",
            "hostname",
            "http.request.host",
            "http_host",
            "requesthost",
            "request_host",
            "server_name",
            "vhost",
            "virtual_host",
        ],
    ),
    (
        "path",
        &[
            ":path",
            "document_uri",
            "endpoint",
            "http.request.uri.path",
            "request_path",
            "request_uri",
            "uri",
            "url",
        ],
    ),
    ("method", &[":method", "http.request.method", "http_method", "request_method", "verb"]),
    (
        "user",
        &[
            "consumer",
            "credential",
            "http.auth.user.id",
            "remote_user",
            "user_id",
            "userid",
            "username",
        ],
    ),
    ("route", &["all", "everyone", "everything", "global", "none", "service", "total"]),
    ("jwt:sub", &["claim", "jwt", "sub", "subject", "token"]),
    ("header:authorization", &["authorization", "bearer", "http_authorization"]),
    ("header:x-api-key", &["api-key", "api_key", "apikey", "x-api-key", "x_api_key", "xapikey"]),
];

/// What comes before a name, in lower case, and the part of which it is the name. Of two that begin
/// alike, the longer one comes first.
const PREFIXES: &[(&str, &str)] = &[
    ("http.request.header", "header"),
    ("http.request.cookie", "cookie"),
    ("http.request.uri.query", "query"),
    ("request.header", "header"),
    ("request_headers", "header"),
    ("request_header", "header"),
    ("requestheadername", "header"),
    ("req.header", "header"),
    ("req.hdr", "header"),
    ("req.fhdr", "header"),
    ("req.cook", "cookie"),
    ("req", "header"),
    ("headers", "header"),
    ("header", "header"),
    ("hdr", "header"),
    ("http", "header"),
    ("cookies", "cookie"),
    ("cookie", "cookie"),
    ("cook", "cookie"),
    ("query_params", "query"),
    ("query_param", "query"),
    ("query", "query"),
    ("url_param", "query"),
    ("urlp", "query"),
    ("params", "query"),
    ("param", "query"),
    ("args", "query"),
    ("arg", "query"),
    ("jwt_claims", "jwt"),
    ("jwt_claim", "jwt"),
    ("jwt", "jwt"),
    ("claims", "jwt"),
    ("claim", "jwt"),
    ("token", "jwt"),
];

/// The longest text that is looked at.
const LONGEST: usize = 100;

/// Returns the key that `text`, which is none, is probably meant to be: `header:x-api-key` for
/// `X-Api-Key` and `$http_x_api_key`, `[client_ip, host]` for `$binary_remote_addr$host`.
pub(crate) fn meant_key(text: &str) -> Option<String> {
    if text.len() > LONGEST || !text.is_ascii() {
        return None;
    }
    let variables: Vec<&str> = text.split('$').skip(1).collect();
    if text.starts_with('$') && variables.len() > 1 {
        let parts: Option<Vec<_>> = variables.into_iter().map(part).collect();
        return parts.map(|parts| format!("[{}]", parts.join(", ")));
    }
    part(text)
}

fn part(text: &str) -> Option<String> {
    let is_variable = text.starts_with(['$', '%', '{']);
    let bare = text.trim_matches(['$', '%', '{', '}', ' ', ':', '"', '\'']);
    let lower = bare.to_ascii_lowercase();
    let is_word = |(part, words): &&(&str, &[&str])| *part == lower || words.contains(&&*lower);
    if let Some((part, _)) = WORDS.iter().find(is_word) {
        return Some((*part).to_owned());
    }
    if let Some(part) = named(bare, &lower) {
        return Some(part);
    }
    // A field's name alone, as in `X-Tenant`.
    let is_name = lower.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let is_field = lower.contains('-') || lower.starts_with("x_");
    let field = || format!("header:{}", lower.replace('_', "-"));
    (is_name && is_field && !is_variable).then(field)
}

/// Reads a part with its name behind a prefix, as in `jwt.sub`, `req.hdr(X-Api-Key)`,
/// `header[x-tenant]`, `http_x_tenant` and `cookie_session`.
fn named(bare: &str, lower: &str) -> Option<String> {
    let (prefix, part) = PREFIXES.iter().find(|(prefix, _)| {
        let rest = lower.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(['.', '_', '(', '[', '/', ':', '=', ' ', '-']))
    })?;
    let rest = &bare[prefix.len()..];
    let is_snake = rest.starts_with('_');
    let name =
        rest.trim_matches(['.', '_', '(', ')', '[', ']', '/', ':', '=', ' ', '-', '"', '\'']);
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(fits) {
        return None;
    }
    if *part != "header" {
        return Some(format!("{part}:{name}"));
    }
    let name = name.to_ascii_lowercase();
    // nginx writes the `-` of a field as `_`.
    Some(format!("header:{}", if is_snake { name.replace('_', "-") } else { name }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::KeyPart;

    #[test]
    fn the_keys_of_other_gateways_are_known_and_what_is_meant_is_a_key() {
        for (text, key) in [
            ("X-Api-Key", "header:x-api-key"),
            ("x_api_key", "header:x-api-key"),
            ("$http_x_api_key", "header:x-api-key"),
            ("X-Tenant-Id", "header:x-tenant-id"),
            ("Authorization", "header:authorization"),
            ("User-Agent", "header:user-agent"),
            ("header.x-tenant", "header:x-tenant"),
            ("headers[X-Tenant]", "header:x-tenant"),
            ("header=x_tenant", "header:x_tenant"),
            ("req.hdr(X-Api-Key)", "header:x-api-key"),
            ("hdr(host)", "header:host"),
            ("request.header.X-Api-Key", "header:x-api-key"),
            ("{http.request.header.X-Api-Key}", "header:x-api-key"),
            ("%REQ(X-API-KEY)%", "header:x-api-key"),
            ("jwt.sub", "jwt:sub"),
            ("jwt[tenant]", "jwt:tenant"),
            ("claims.tenant", "jwt:tenant"),
            ("$jwt_claim_sub", "jwt:sub"),
            ("sub", "jwt:sub"),
            ("$cookie_session", "cookie:session"),
            ("cookie.JSESSIONID", "cookie:JSESSIONID"),
            ("req.cook(sid)", "cookie:sid"),
            ("$arg_token", "query:token"),
            ("query.q", "query:q"),
            ("url_param(q)", "query:q"),
            ("ip", "client_ip"),
            ("$binary_remote_addr", "client_ip"),
            ("{remote_host}", "client_ip"),
            ("%DOWNSTREAM_REMOTE_ADDRESS%", "client_ip"),
            ("X-Forwarded-For", "client_ip"),
            ("src", "client_ip"),
            ("Client_IP", "client_ip"),
            ("$host", "host"),
            ("domain", "host"),
            ("$uri", "path"),
            ("$request_method", "method"),
            ("consumer", "user"),
            ("$remote_user", "user"),
            ("global", "route"),
        ] {
            assert_eq!(meant_key(text).as_deref(), Some(key), "{text}");
            assert!(KeyPart::parse(key, 64).is_ok(), "{key}");
        }
        assert_eq!(
            meant_key("$binary_remote_addr$http_x_tenant").as_deref(),
            Some("[client_ip, header:x-tenant]")
        );
        for text in
            ["", "$", "$foo", "frobnicate", "header:", "jwt.", "$a$b", "\u{e4}", "req.hdr()"]
        {
            assert_eq!(meant_key(text), None, "{text}");
        }
    }
}
