//! The clients that may use a route: by address, and by their credentials.

use super::{
    compiler::Compiler,
    networks::{MAX_WARNINGS, Networks},
    plan_file::read,
};
use crate::{
    auth::{ALGORITHMS, Algorithm, InvalidUsers, JwtKeys, JwtRules, TokenSource, Users},
    config::{
        decode::{At, Either, Key},
        diagnostics::{Lint, Problem},
        plan::{Access, Auth, ClientList, Jwt, RulePlan},
        read::source::Files,
        spec::{AccessSpec, AuthSpec, ForwardSpec, JwtSpec},
    },
    route::{KeyPart, KeySpec, NetworkFile},
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
        let (allowed, allowed_places) = self.clients(&spec.allow);
        let (denied, denied_places) = self.clients(&spec.deny);
        self.allowed_and_denied(&allowed, &denied);
        let allow = ClientList::of(&allowed, allowed_places);
        let deny = ClientList::of(&denied, denied_places);
        Access::new(spec.allow.is_written().then_some(allow), deny)
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
        let own = spec.basic.span.map(|span| ("basic", span));
        let own = own.or_else(|| spec.jwt.span.map(|span| ("jwt", span)));
        match (own, spec.forward.span) {
            (None, None) => {
                self
                    .error(Problem::error(*span, "`auth` without `basic`, `jwt` or `forward`").help(
                    "write `auth: { basic: FILE }`, `auth: { jwt: { jwks: FILE } }` or `auth: { \
                     forward: { url: http://… } }`, or remove it",
                ));
            }
            (Some((name, own)), Some(forward)) => {
                self.error(
                    Problem::error(forward, format!("`forward` beside `{name}`"))
                        .label("the service decides alone")
                        .also(own, "flowgate decides")
                        .help("remove one, or write two routes"),
                );
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
        let users = spec.basic.path().and_then(|file| self.users(&file, files));
        let (basic, of_users) = users.unzip();
        let jwt = spec.jwt.value().and_then(|spec| self.jwt(spec, rules, files));
        let (jwt, of_keys) = jwt.unzip();
        let print = of_users.unwrap_or_default() ^ of_keys.unwrap_or_default().rotate_left(1);
        (Some(Auth { basic, jwt, forward: None }), print)
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
        let proofs = Proofs::of(key);
        for rule in rules.iter().filter(|rule| rule.when.is_none()) {
            let is_claim = rule.key.claims().next().is_some();
            let unsaid = rule.key.auth_fields().find(|name| !proofs.says(name.as_str()));
            let is_certificate = rule.key.parts().contains(&KeyPart::ClientCert);
            let verifies = || self.listeners.iter().any(|known| known.verifies_clients);
            let (lacks, help) = if is_certificate && !verifies() {
                (
                    "no listener asks for certificates",
                    "write `client_ca: FILE` in `tls` of a listener".to_owned(),
                )
            } else if is_claim && !proofs.has_jwt {
                (
                    "its route has no `auth: { jwt }`",
                    "write `auth: { jwt: { jwks: FILE } }` at the route: clients could forge a claim that is not verified".to_owned(),
                )
            } else if let Some(name) = unsaid {
                unsaid_field(&proofs, name.as_str())
            } else if rule.key.needs_user() && !proofs.has_users {
                let help = if key.is_written() {
                    "write `key: auth:NAME` with a field that `copy` of `forward` names, as in `key: auth:remote-user`"
                } else {
                    "write `auth: { basic: FILE }` or `auth: { jwt: { jwks: FILE } }` at the route"
                };
                let lacks = if key.is_written() {
                    "its route has no `auth: { basic }` or `auth: { jwt }`"
                } else {
                    "its route has no `auth`"
                };
                (lacks, help.to_owned())
            } else {
                continue;
            };

            let message = format!("the rule `{}` counts by `{}`, and {lacks}", rule.name, rule.key);
            self.error(Problem::error(rule.span, message).help(help));
        }

        let early = rules.iter().find(|rule| rule.before_auth && !proofs.has_service());
        if let Some(rule) = early {
            let message = format!(
                "the rule `{}` has `before_auth`, and its route has no `auth: {{ forward }}`",
                rule.name
            );
            let help = "remove `before_auth`: all rules of the route decide together";
            self.error(Problem::error(rule.span, message).help(help));
        }

        self.plans_need_auth(&proofs, rules);
        self.shares_need_auth(&proofs, rules);
        self.conditions_need_auth(&proofs, rules);
    }

    /// Reports queues in the order of what clients of this route need not prove.
    fn shares_need_auth(&mut self, proofs: &Proofs<'_>, rules: &[RulePlan]) {
        for rule in rules.iter().filter(|rule| rule.when.is_none()) {
            let shares = rule.shares.iter();
            let Some(key) = shares.flat_map(|shares| shares.keys()).find(|key| proofs.lack(key))
            else {
                continue;
            };
            let message = format!(
                "the queue of the rule `{}` is shared by `{key}`, which its route has no `auth` for",
                rule.name
            );
            self.error(Problem::error(rule.span, message).help(
                "write `auth: { jwt: { jwks: FILE } }` at the route, or a part that needs no proof",
            ));
        }
    }

    /// Reports plans by what clients of this route need not prove.
    fn plans_need_auth(&mut self, proofs: &Proofs<'_>, rules: &[RulePlan]) {
        for rule in rules {
            let Some(plans) = &rule.plans else { continue };
            let is_unsaid = plans.by().auth_fields().any(|name| !proofs.says(name.as_str()));
            let lacks = if plans.by().claims().next().is_some() && !proofs.has_jwt {
                "`auth: { jwt }`: clients could forge it"
            } else if is_unsaid {
                "`auth: { forward }` that copies it: clients could forge it"
            } else if plans.by().needs_user() && !proofs.has_users {
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
    fn conditions_need_auth(&mut self, proofs: &Proofs<'_>, rules: &[RulePlan]) {
        for rule in rules {
            // All versions of a rule have the same exceptions.
            let except = rule.except.iter().filter(|_| rule.when.is_none());
            let except = except.flat_map(|except| except.identity());
            let when = rule.when.iter().flat_map(|when| when.identity());
            let mut lacking = when.chain(except).filter(|pattern| match pattern.claim() {
                Some(_) => !proofs.has_jwt,
                None => !proofs.has_users,
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

/// The proofs that `auth` of a route asks clients for.
struct Proofs<'k> {
    has_jwt: bool,
    has_users: bool,
    forward: Option<&'k ForwardSpec>,
    /// True if it is not known what `auth` says, as other files are not read.
    is_unread: bool,
}

impl<'k> Proofs<'k> {
    fn of(key: &'k Key<Box<AuthSpec>>) -> Self {
        let Some(auth) = key.value() else {
            let is_unread = key.is_written();
            return Self { has_jwt: is_unread, has_users: is_unread, forward: None, is_unread };
        };
        let has_jwt = auth.jwt.is_written();
        Self {
            has_jwt,
            has_users: has_jwt || auth.basic.is_written(),
            forward: auth.forward.value().map(|forward| &**forward),
            is_unread: auth.forward.is_written() && auth.forward.at.is_none(),
        }
    }

    /// Returns whether an auth service decides about the route's requests.
    fn has_service(&self) -> bool {
        self.forward.is_some() || self.is_unread
    }

    /// Returns whether a key has a part that the route's requests do not prove.
    fn lack(&self, key: &KeySpec) -> bool {
        key.claims().next().is_some() && !self.has_jwt
            || key.needs_user() && !self.has_users
            || key.auth_fields().any(|name| !self.says(name.as_str()))
    }

    /// Returns whether an auth service says the field called `name`.
    fn says(&self, name: &str) -> bool {
        let copied = |forward: &&ForwardSpec| {
            forward.copy.items().iter().any(|at| match &at.value {
                Either::Plain(copied) => copied.0.as_str() == name,
                Either::Map(copied) => {
                    copied.from.value().is_some_and(|from| from.0.as_str() == name)
                }
            })
        };
        self.is_unread || self.forward.as_ref().is_some_and(copied)
    }
}

/// Returns why a rule cannot look at the field `name` of an auth service, and what to write.
fn unsaid_field(proofs: &Proofs<'_>, name: &str) -> (&'static str, String) {
    if proofs.forward.is_some() {
        return (
            "`copy` of its route's `forward` does not name the field",
            format!("write `copy: [{name}]` at `forward`, or the name of a field that it has"),
        );
    }
    (
        "its route has no `auth: { forward }`",
        format!(
            "write `auth: {{ forward: {{ url: http://…, copy: [{name}] }} }}` at the route: \
             clients could forge a field that no service says"
        ),
    )
}

fn in_words(InvalidUsers { line, message }: InvalidUsers) -> (String, &'static str) {
    let message = match line {
        Some(line) => format!("cannot be used: line {line}: {message}"),
        None => format!("cannot be used: {message}"),
    };
    (message, "write each user by `htpasswd -B FILE USER`, which hashes the password by bcrypt")
}
