//! Texts with variables of nginx as texts with placeholders.

use super::{listeners::Listener, places::PlaceVariable, tree::Directive};
use core::iter::once;
use std::collections::BTreeSet;

/// The values of variables of nginx that hold in a server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerVariables<'a> {
    /// The first name of the server.
    pub server_name: &'a str,
    /// The port, if the server has one.
    pub port: Option<u16>,
    /// Its connections have TLS, if all or none have.
    pub is_tls: Option<bool>,
    pub certificates: Certificates,
    /// The variables that say where a client is.
    pub places: &'a [PlaceVariable<'a>],
}

/// The certificates that the clients of a server show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Certificates {
    /// No client shows one.
    #[default]
    None,
    /// Some clients show one.
    Some,
    /// Every client has shown one.
    All,
}

impl<'a> ServerVariables<'a> {
    /// Returns the variables of a server at these listeners. Of `geoip2` blocks there are `places`.
    pub(super) fn new<'l>(
        server: &'a Directive,
        listeners: impl Iterator<Item = &'l Listener<'l>>,
        places: &'a [PlaceVariable<'a>],
    ) -> Self {
        let mut ports = BTreeSet::new();
        let mut schemes = BTreeSet::new();
        let mut certificates = BTreeSet::new();
        for listener in listeners {
            ports.insert(listener.port());
            schemes.insert(listener.has_tls);
            certificates.insert(listener.clients.as_ref().map(|asked| asked.is_required));
        }
        let has_some = certificates.iter().any(Option::is_some);
        let has_all = certificates.iter().all(|asked| *asked == Some(true));
        let name = server.all("server_name").next().map_or("", |names| names.arg(0));
        Self {
            // nginx takes the dot of `.a.test` off.
            server_name: name.strip_prefix('.').unwrap_or(name),
            // Of a Unix socket nginx has no port.
            port: ports.first().copied().filter(|_| ports.len() == 1).flatten(),
            is_tls: schemes.first().copied().filter(|_| schemes.len() == 1),
            certificates: match (has_some, has_all) {
                (false, _) => Certificates::None,
                (true, false) => Certificates::Some,
                (true, true) => Certificates::All,
            },
            places,
        }
    }

    /// Returns the value of a variable that is the same for all requests of the server.
    pub(super) fn known(&self, name: &str) -> Option<String> {
        let value = match name {
            "scheme" => if self.is_tls? { "https" } else { "http" }.to_owned(),
            "https" => if self.is_tls? { "on" } else { "" }.to_owned(),
            "server_port" => self.port?.to_string(),
            "ssl_client_verify" => match (self.certificates, self.is_tls) {
                (Certificates::All, _) => "SUCCESS".to_owned(),
                (Certificates::None, Some(true)) => "NONE".to_owned(),
                (Certificates::None, Some(false)) => String::new(),
                (Certificates::None | Certificates::Some, _) => return None,
            },
            "ssl_client_s_dn" if self.certificates == Certificates::None => String::new(),
            _ => return None,
        };
        Some(value)
    }
}

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    /// A variable without its `$`.
    Variable(&'a str),
}

/// Splits a text at its variables.
///
/// # Errors
/// A `$` without a name.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut parts = text.split('$');
    let mut pieces: Vec<_> = parts.next().map(Piece::Text).into_iter().collect();
    for part in parts {
        let (name, rest) = if let Some(inner) = part.strip_prefix('{') {
            inner.split_once('}').ok_or("a `${` is not closed")?
        } else {
            let is_sign = |sign: char| !sign.is_ascii_alphanumeric() && sign != '_';
            part.split_at(part.find(is_sign).unwrap_or(part.len()))
        };
        if name.is_empty() {
            return Err("a `$` has no name behind it".into());
        }
        pieces.extend([Piece::Variable(name), Piece::Text(rest)]);
    }
    pieces.retain(|piece| *piece != Piece::Text(""));
    Ok(pieces)
}

/// Returns the text that has these pieces, as files usually write it.
pub(super) fn joined(all: &[Piece<'_>]) -> String {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    let mut text = String::new();
    for (at, piece) in all.iter().enumerate() {
        match piece {
            Piece::Text(part) => text += part,
            Piece::Variable(name) => {
                let goes_on =
                    matches!(all.get(at + 1), Some(Piece::Text(next)) if next.starts_with(is_sign));
                let name = if goes_on { format!("${{{name}}}") } else { format!("${name}") };
                text += &name;
            }
        }
    }
    text
}

/// Returns a text with placeholders in place of variables.
///
/// # Errors
/// A variable has no placeholder.
pub(super) fn template(text: &str, variables: &ServerVariables<'_>) -> Result<String, String> {
    let text = text.replace("$is_args$args", "${is_args_args}");
    let text = text.replace("$is_args$query_string", "${is_args_args}");
    let parts = pieces(&text)?.into_iter().map(|piece| match piece {
        Piece::Text(text) => Ok(literal(text)),
        Piece::Variable(name) => placeholder(name, variables),
    });
    parts.collect()
}

fn placeholder(name: &str, variables: &ServerVariables<'_>) -> Result<String, String> {
    Ok(match name {
        // `$http_host` without a port, as clients write it to the usual one.
        "host" | "http_host" => "{host}".into(),
        "scheme" => "{scheme}".into(),
        "request_method" => "{method}".into(),
        "remote_addr" => "{client_ip}".into(),
        "request_uri" => "{path}{query}".into(),
        "request_id" => "{request_id}".into(),
        "ssl_client_s_dn" => "{client_cert_subject}".into(),
        "ssl_client_verify" => variables.known(name).map(|value| literal(&value)).ok_or(
            "$ssl_client_verify says whether the client has shown a certificate: see `client_cert` in `match`",
        )?,
        "is_args_args" => "{query}".into(),
        "server_name" => literal(variables.server_name),
        "server_port" => variables
            .port
            .ok_or("$server_port is not one port: the server has several")?
            .to_string(),
        other => {
            let place = variables.places.iter().find(|place| place.name == other);
            let place = place.ok_or_else(|| format!("no placeholder stands for ${other}"))?;
            if !place.default.is_empty() {
                return Err(format!("a placeholder is empty where ${other} is its default"));
            }
            format!("{{{}}}", place.kind.word())
        }
    })
}

/// Returns a text whose words in braces stay as they are.
pub(super) fn literal(text: &str) -> String {
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || "_-.".contains(sign);
    let mut out = String::new();
    let mut parts = text.split('{');
    out += parts.next().unwrap_or_default();
    for part in parts {
        let word = part.split_once('}').filter(|(word, _)| word.chars().all(is_word));
        match word {
            Some((word, rest)) if !word.is_empty() => {
                out.extend(once(format!("{{{{{word}}}}}{rest}")));
            }
            _ => out.extend(["{", part]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_placeholders_or_an_error() {
        let variables =
            ServerVariables { server_name: "a.test", port: Some(80), ..ServerVariables::default() };
        for (text, expected) in [
            ("https://$host$request_uri", "https://{host}{path}{query}"),
            ("${scheme}://$server_name:$server_port/$is_args$args", "{scheme}://a.test:80/{query}"),
            ("{ \"a\": {} } {x}", "{ \"a\": {} } {{x}}"),
            ("plain", "plain"),
        ] {
            assert_eq!(template(text, &variables).as_deref(), Ok(expected), "{text}");
        }
        for text in ["$", "a$ b", "${", "${}", "$uri", "$1"] {
            assert!(template(text, &variables).is_err(), "{text}");
        }
    }
}
