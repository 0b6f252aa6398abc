//! The clients that may use a route: by address, and by their credentials.

use super::{
    compiler::Compiler,
    named_file::read,
    networks::{MAX_WARNINGS, Networks},
};
use crate::{
    auth::{ALGORITHMS, Algorithm, InvalidUsers, JwtKeys, JwtRules, TokenSource, Users},
    config::{
        decode::{At, Key},
        diagnostics::{Lint, Problem},
        plan::{Access, Auth, Jwt, RulePlan},
        read::source::Files,
        spec::{AccessSpec, AuthSpec, JwtSpec},
    },
    route::NetworkFile,
};
use ipnet::IpNet;
use std::{path::PathBuf, sync::Arc};

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
        if let Some(at) = spec.allow.as_ref().filter(|at| at.written && at.value.0.0.is_empty()) {
            self.warn(
                Problem::warning(Lint::AccessForNobody, at.span, "no client may use the route")
                    .help("write an address or a range, as in `10.0.0.0/8`, or remove `allow`"),
            );
        }
        let allowed = self.networks(&spec.allow);
        let denied = self.networks(&spec.deny);
        self.allowed_and_denied(&allowed, &denied);
        Access::new(spec.allow.is_written().then_some(allowed.list), denied.list)
    }

    /// Warns of networks that can never be allowed. Of a file, the first one is reported.
    fn allowed_and_denied(&mut self, allowed: &Networks, denied: &Networks) {
        let covering = |network: &IpNet| {
            let own = denied.list.own().covering(network);
            let own = own.and_then(|(_, place)| denied.own.get(usize::try_from(place).ok()?));
            own.map(|at| at.span).or_else(|| {
                let covers = |file: &Arc<NetworkFile>| file.networks.covering(network).is_some();
                let index = denied.list.files().iter().position(covers)?;
                denied.file_spans.get(index).copied()
            })
        };

        let own = allowed.own.iter().filter_map(|at| {
            Some((at.span, covering(&at.value)?, format!("`{}` is allowed and denied", at.value)))
        });
        let files = allowed.list.files().iter().zip(&allowed.file_spans);
        let of_files = files.filter_map(|(file, span)| {
            let mut networks = file.networks.widest();
            let (other, network, line) =
                networks.find_map(|(network, line)| Some((covering(&network)?, network, line)))?;
            let path = file.path.display();
            let message = format!("`{network}`, line {line} of {path}, is allowed and denied");
            Some((*span, other, message))
        });

        for (span, other, message) in own.chain(of_files).take(MAX_WARNINGS) {
            self.warn(
                Problem::warning(Lint::AllowedAndDenied, span, message)
                    .label("never allowed")
                    .also(other, "`deny` wins, whatever the order")
                    .help("remove one; `allow` alone denies all other clients"),
            );
        }
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

        let mut claims: Vec<Box<str>> =
            rules.iter().flat_map(|rule| rule.claims()).map(Into::into).collect();
        claims.sort_unstable();
        claims.dedup();
        let rules = JwtRules {
            source,
            issuer: spec.issuer.value().map(|issuer| issuer.0.clone()),
            audience: spec.audience.plain(|audience| audience.0.clone()),
            algorithms,
            leeway: spec.leeway.duration()?.value,
            claims,
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

    /// Reports rules that look at what clients of this route need not prove.
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

        self.plans_need_auth(has_jwt, key.is_written(), rules);
        self.conditions_need_auth(has_jwt, key.is_written(), rules);
    }

    /// Reports plans by what clients of this route need not prove.
    fn plans_need_auth(&mut self, has_jwt: bool, has_auth: bool, rules: &[RulePlan]) {
        for rule in rules {
            let Some(plans) = &rule.plans else { continue };
            let lacks = if plans.by().claims().next().is_some() && !has_jwt {
                "`auth: { jwt }`: clients could forge it"
            } else if plans.by().needs_identity() && !has_auth {
                "`auth`"
            } else {
                continue;
            };
            let message = format!(
                "the plans of the rule `{}` are by `{}`, and its route has no {lacks}",
                rule.name,
                plans.by()
            );
            self.error(Problem::error(rule.span, message).help(
                "write `auth: { jwt: { jwks: FILE } }` at the route, or a `by` that needs no proof",
            ));
        }
    }

    /// Reports conditions on what clients of this route need not prove.
    fn conditions_need_auth(&mut self, has_jwt: bool, has_auth: bool, rules: &[RulePlan]) {
        for rule in rules {
            // All versions of a rule have the same exceptions.
            let except = rule.except.iter().filter(|_| rule.when.is_none());
            let except = except.flat_map(|except| except.identity());
            let when = rule.when.iter().flat_map(|when| when.identity());
            let mut lacking = when.chain(except).filter(|pattern| match pattern.claim() {
                Some(_) => !has_jwt,
                None => !has_auth,
            });
            let Some(pattern) = lacking.next() else { continue };

            let (part, lacks) = match pattern.claim() {
                Some(claim) => (format!("jwt:{claim}"), "`auth: { jwt }`: clients could forge it"),
                None => ("user".to_owned(), "`auth`"),
            };
            let of = if rule.when.is_some() { "an override" } else { "an exception" };
            let message = format!(
                "{of} of the rule `{}` looks at `{part}`, and its route has no {lacks}",
                rule.name
            );
            self.error(Problem::error(rule.span, message).help(
                "write `auth: { jwt: { jwks: FILE } }` at the route, or a condition that needs no proof, such as `client_ip`",
            ));
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
