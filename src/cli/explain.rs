//! `flowgate explain` and `flowgate rejections`: they ask a running gateway through its admin
//! listener.

use super::{ExplainOptions, Format, RejectionsOptions};
use crate::{
    admin_client::{AdminClient, ClientError, run},
    explain::{Explanation, Question, TokenClaim},
    rejections::RejectionList,
    terminal_text::{terminal_json, terminal_lines},
};
use http::Method;
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Display, io, io::Write, path::Path};

/// Why a command ended without success.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// A header line of the command is none.
    #[error("`{0}` is not a header line: write NAME: VALUE")]
    Header(String),
    /// The gateway is not reached, or cannot explain the request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output cannot be written.
    #[error("cannot write to the standard output")]
    Io(#[from] io::Error),
}

/// Writes to `out` what the gateway would do with a request.
///
/// # Errors
///
/// See [`ExplainError`].
pub fn explain(
    config: &Path,
    options: &ExplainOptions,
    out: &mut impl Write,
) -> Result<(), ExplainError> {
    let question = question(options)?;
    let client = AdminClient::find(config, &options.admin)?;
    let said: Explanation = run(client.post("/explain", &question))?;
    print(&said, options.output, out)
}

/// Writes the last rejections to `out`.
///
/// # Errors
///
/// See [`ExplainError`].
pub fn rejections(
    config: &Path,
    options: &RejectionsOptions,
    out: &mut impl Write,
) -> Result<(), ExplainError> {
    let RejectionsOptions { route, rule, limit, admin, output } = options;
    let filters = [("route", route), ("rule", rule)].into_iter();
    let filters = filters.filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let filters: String = filters
        .flat_map(|(name, value)| {
            ["&", name, "="].map(str::to_owned).into_iter().chain([encoded(value)])
        })
        .collect();
    let path = format!("/rejections?limit={limit}{filters}");
    let client = AdminClient::find(config, admin)?;
    let list: RejectionList = run(client.ask(Method::GET, &path, ""))?;
    print(&list, *output, out)
}

fn question(options: &ExplainOptions) -> Result<Question, ExplainError> {
    let (method, path) = match &options.request[..] {
        [method, path, ..] => (method.clone(), path.clone()),
        rest => (Method::GET.to_string(), rest.concat()),
    };
    let headers = options.headers.iter().map(|line| {
        let (name, value) =
            line.split_once(':').ok_or_else(|| ExplainError::Header(line.clone()))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    let mut claims: BTreeMap<String, TokenClaim> = BTreeMap::new();
    for (name, value) in options.claims.iter().cloned() {
        let claim = match claims.remove(&name) {
            Some(claim) => claim.and(value),
            None => TokenClaim::One(value),
        };
        claims.insert(name, claim);
    }

    Ok(Question {
        method,
        path,
        host: options.host.clone(),
        headers: headers.collect::<Result<_, ExplainError>>()?,
        json: options.json.clone(),
        from: Some(options.from),
        listener: options.listener.clone(),
        client_cert_subject: options.client_cert_subject.clone(),
        client_cert_fingerprint: options.client_cert_fingerprint.clone(),
        user: options.user.clone(),
        token: options.token.clone(),
        claims,
    })
}

/// Returns a value as a query has it.
fn encoded(value: &str) -> String {
    let each = value.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    });
    each.collect()
}

fn print(
    value: &(impl Serialize + Display),
    format: Format,
    out: &mut impl Write,
) -> Result<(), ExplainError> {
    let text = match format {
        Format::Text => value.to_string(),
        Format::Json => serde_json::to_string_pretty(value).map_err(io::Error::from)? + "\n",
    };
    let text = match format {
        Format::Text => terminal_lines(&text),
        Format::Json => terminal_json(&text),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
