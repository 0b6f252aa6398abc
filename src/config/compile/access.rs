//! Which clients may use a route: by address, and by their credentials.

use super::compiler::Compiler;
use crate::{
    auth::{ALGORITHMS, Algorithm, InvalidUsers, JwtKeys, JwtRules, TokenSource, Users},
    config::{
        decode::{At, Key},
        diagnostics::{Lint, Problem, quoted},
        plan::{Access, Auth, Jwt, RulePlan},
        read::source::Files,
        spec::{AccessSpec, AuthSpec, JwtSpec, leaf::Network},
    },
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::Arc,
};

impl Compiler {
    pub(super) fn access(&mut self, at: &At<Box<AccessSpec>>) -> Access {
        let spec = &at.value;
        if !spec.allow.is_written() && !spec.deny.is_written() {
            self.error(
                Problem::error(at.span, "`access` without `allow` and `deny`").help(
                    "write `allow: [10.0.0.0/8]`, or remove it: all clients may use the route",
                ),
            );
        }
        self.host_bits(&spec.allow);
        self.host_bits(&spec.deny);
        if let Some(at) = spec.allow.as_ref().filter(|at| at.written && at.value.0.0.is_empty()) {
            self.warn(
                Problem::warning(Lint::AccessForNobody, at.span, "no client may use the route")
                    .help("write an address or a range, as in `10.0.0.0/8`, or remove `allow`"),
            );
        }
        let denied = spec.deny.items();
        for allowed in spec.allow.items() {
            let covers = |denied: &&At<Network>| denied.value.0.contains(&allowed.value.0);
            if let Some(denied) = denied.iter().find(covers) {
                let message = format!("`{}` is allowed and denied", allowed.value.0);
                self.warn(
                    Problem::warning(Lint::AllowedAndDenied, allowed.span, message)
                        .label("never allowed")
                        .also(denied.span, "`deny` wins, whatever the order")
                        .help("remove one; `allow` alone denies all other clients"),
                );
            }
        }
        let allow = spec.allow.is_written().then(|| self.networks(&spec.allow));
        Access::new(allow, &self.networks(&spec.deny))
    }

    /// Compiles what clients must prove, and returns what the files that it names hash to. Of
    /// tokens, the claims are kept that `rules` count by.
    pub(super) fn auth(
        &mut self,
        key: &Key<Box<AuthSpec>>,
        rules: &[RulePlan],
        files: &Files,
    ) -> (Option<Auth>, u64) {
        let Some(At { value: spec, span, .. }) = key.as_ref() else { return (None, 0) };
        if !spec.basic.is_written() && !spec.jwt.is_written() {
            self.error(Problem::error(*span, "`auth` without `basic` or `jwt`").help(
                "write `auth: { basic: FILE }` or `auth: { jwt: { jwks: FILE } }`, or remove it",
            ));
        }
        let users = spec.basic.path().and_then(|file| self.users(&file, files));
        let (basic, of_users) = users.unzip();
        let jwt = spec.jwt.value().and_then(|spec| self.jwt(spec, rules, files));
        let (jwt, of_keys) = jwt.unzip();
        let print = of_users.unwrap_or_default() ^ of_keys.unwrap_or_default().rotate_left(1);
        (Some(Auth { basic, jwt }), print)
    }

    fn jwt(
        &mut self,
        spec: &JwtSpec,
        rules: &[RulePlan],
        files: &Files,
    ) -> Option<(Arc<Jwt>, u64)> {
        let source = match (&spec.header.at, &spec.cookie.at) {
            (Some(header), Some(cookie)) => {
                self.error(
                    Problem::error(cookie.span, "a token in a header and in a cookie")
                        .label("here")
                        .also(header.span, "and here")
                        .help("write one of `header` and `cookie`"),
                );
                return None;
            }
            (Some(header), None) if header.value.0 != http::header::AUTHORIZATION => {
                TokenSource::Header(header.value.0.clone())
            }
            (_, None) => TokenSource::Bearer,
            (None, Some(cookie)) => TokenSource::Cookie(cookie.value.0.clone()),
        };
        let named = spec.algorithms.plain(|algorithm| algorithm.0);
        let is_public = |kind: &Algorithm| ALGORITHMS[..9].iter().any(|(_, public)| public == kind);
        let public = ALGORITHMS.iter().map(|(_, kind)| *kind).filter(is_public);
        let algorithms = if named.is_empty() { public.collect() } else { named };
        let file = spec.jwks.path()?;
        let parse = |text: &str| {
            let help = "write the issuer's public keys as a JSON Web Key Set (RFC 7517)";
            JwtKeys::read(text, &algorithms).map_err(|wrong| (wrong.to_owned(), help))
        };
        let (keys, print) = match read(&file, files, "key set", parse) {
            Ok(read) => read,
            Err(problem) => {
                self.error(problem);
                return None;
            }
        };
        let counted = rules.iter().flat_map(|rule| rule.key.claims());
        let rules = JwtRules {
            source,
            issuer: spec.issuer.value().map(|issuer| issuer.0.clone()),
            audience: spec.audience.plain(|audience| audience.0.clone()),
            algorithms,
            leeway: spec.leeway.duration()?.value,
            claims: counted.map(Into::into).collect(),
        };
        Some((Arc::new(Jwt { keys, rules, print }), print))
    }

    /// Reads a file of users, once for all routes that name it.
    fn users(&mut self, file: &At<PathBuf>, files: &Files) -> Option<(Arc<Users>, u64)> {
        if let Some(known) = self.users.get(&file.value) {
            return known.clone();
        }
        let users = read(file, files, "password file", |text| Users::read(text).map_err(in_words));
        let users = match users {
            Ok((users, print)) => Some((Arc::new(users), print)),
            Err(problem) => {
                self.error(problem);
                None
            }
        };
        self.users.insert(file.value.clone(), users.clone());
        users
    }

    /// Reports rules that count by what clients of this route need not prove.
    pub(super) fn needs_auth(&mut self, key: &Key<Box<AuthSpec>>, rules: &[RulePlan]) {
        let has_jwt = match key.value() {
            Some(auth) => auth.jwt.is_written(),
            // What it says is not known where other files are not read.
            None => key.is_written(),
        };
        for rule in rules.iter().filter(|rule| rule.when.is_none()) {
            let is_claim = rule.key.claims().next().is_some();
            let (lacks, help) = if is_claim && !has_jwt {
                (
                    "its route has no `auth: { jwt }`",
                    "write `auth: { jwt: { jwks: FILE } }` at the route: clients could forge a claim that is not verified",
                )
            } else if rule.key.needs_identity() && !key.is_written() {
                (
                    "its route has no `auth`",
                    "write `auth: { basic: FILE }` or `auth: { jwt: { jwks: FILE } }` at the route",
                )
            } else {
                continue;
            };
            let message = format!("the rule `{}` counts by `{}`, and {lacks}", rule.name, rule.key);
            self.error(Problem::error(rule.span, message).help(help));
        }
    }
}

fn in_words(InvalidUsers { line, message }: InvalidUsers) -> (String, &'static str) {
    let message = match line {
        Some(line) => format!("cannot be used: line {line}: {message}"),
        None => format!("cannot be used: {message}"),
    };
    (message, "write each user by `htpasswd -B FILE USER`, which hashes the password by bcrypt")
}

/// Returns what `parse` makes of a file, and what its bytes hash to. `parse` says what is wrong and
/// what to do.
fn read<T>(
    file: &At<PathBuf>,
    files: &Files,
    what: &str,
    parse: impl FnOnce(&str) -> Result<T, (String, &'static str)>,
) -> Result<(T, u64), Problem> {
    let shown = quoted(&file.value.to_string_lossy());
    let problem = |message: String, help: &str| Problem::error(file.span, message).help(help);
    let bytes = match files.get(&file.value) {
        Some(Ok(bytes)) => bytes,
        Some(Err(why)) => {
            let help = "write the name of a file that the gateway's user may read; relative names \
                        are meant from this file's folder";
            return Err(problem(format!("cannot read the {what} {shown}: {why}"), help));
        }
        None => return Err(problem(format!("the {what} {shown} was not read"), "")),
    };
    let text = str::from_utf8(bytes)
        .map_err(|_| problem(format!("the {what} {shown} is not UTF-8"), "write it as text"))?;
    let parsed = parse(text)
        .map_err(|(wrong, help)| problem(format!("the {what} {shown} {wrong}"), help))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok((parsed, hasher.finish()))
}
