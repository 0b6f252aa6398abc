//! The clients that may use a route: by address, by lists of networks, and by their credentials.

use super::{
    ConditionSpec, RouteSpec, RuleSpec,
    keys::keys,
    leaf::{
        AsNumber, AuthUrl, CheckPath, CopiedName, CountryCode, EditableName, FieldName, FieldValue,
        FileName, JwtAlgorithm, Name, Network, Period, RedirectTo, SECOND, Text, Timeout,
    },
};
use crate::config::{
    decode::{At, Either, Entries, Key, Many, Several},
    diagnostics::Source,
};

const JWKS: &str =
    "write `jwks: issuer.json`: flowgate fetches no URLs, so save the key set in a file";

/// Words of other gateways for keys of `forward`.
const FORWARD_MEANT: &[[&str; 2]] = &[
    ["address", "url"],
    ["authResponseHeaders", "copy"],
    ["auth_response_headers", "copy"],
    ["allowed_upstream_headers", "copy"],
    ["copy_headers", "copy"],
    ["headers", "copy"],
    ["request_headers", "set"],
    ["set_headers", "set"],
    ["response_headers", "copy"],
    ["redirect", "login"],
    ["server", "url"],
    ["service", "upstream"],
    ["sign_in", "login"],
    ["signin", "login"],
    ["uri", "path"],
];

const MINUTE: u64 = 60 * SECOND;

keys! {
    /// Which clients may use the route, by their address: those in `allow` (without it, all),
    /// except those in `deny`. `deny` wins, whatever the order. All other clients get 403, and no
    /// rule counts them.
    struct AccessSpec: "access" {
        /// Addresses, networks, countries and autonomous systems that may use the route.
        allow: ClientsSpec, else "all";
        /// Addresses, networks, countries and autonomous systems that may not use the route.
        deny: ClientsSpec, else "none";
    }

    /// Which passwords or tokens a client needs, or the service that decides about each request.
    /// Clients without one get 401, or the response of the service, and no rule counts them.
    struct AuthSpec: "auth" {
        /// A file of users and bcrypt hashes, as `htpasswd -B` writes it. A request needs the
        /// password of one of them (`Authorization: Basic`). flowgate watches the file and reloads
        /// it like this file.
        #[help = "write the name of a file that `htpasswd -B` makes, as in `basic: users.htpasswd`"]
        basic: FileName, else "–";
        /// A token that one of these keys has signed (JWT). With `basic`, either is enough.
        jwt: Box<JwtSpec>, else "–";
        /// A service that decides about each request (forward auth), such as oauth2-proxy or
        /// Authelia. It cannot stand beside `basic` or `jwt`.
        forward: Box<ForwardSpec>, else "–";
    }

    /// flowgate sends the service a `GET` with the header of each request, before the rules decide.
    /// A response with a status of 200 to 299 lets the request pass. The client gets any other
    /// response as it is. If the service gives none, the client gets 502, or 504 after `timeout`.
    #[meant = FORWARD_MEANT]
    struct ForwardSpec: "forward auth" {
        /// `http://HOST:PORT/PATH` of the service. Write this, or `upstream` with `path`.
        url: AuthUrl, else "–";
        /// The upstream of the service, for TLS, several servers and health checks.
        upstream: Name, else "–";
        /// The path that `upstream` is asked for, with a query if necessary.
        path: CheckPath, else "–";
        /// Header fields of the service's response that the route's upstream receives, also by
        /// another name. flowgate removes what the client sends in these fields, whether the service
        /// sends them or not.
        copy: Several<Either<CopiedName, CopySpec>>, else "none";
        /// Fields that the service receives besides, with placeholders, as in `x-original-url:
        /// "{scheme}://{host}{path}{query}"`. They replace what the client sends. `{path}` is the path
        /// that the route's upstream receives, before `rewrite`.
        set: Entries<EditableName, FieldValue>, else "none";
        /// A URL or a path to which clients are redirected in place of a 401 of the service, with
        /// placeholders, as in `/oauth2/start?rd={uri}`.
        login: RedirectTo, else "–: the client gets the 401";
        /// How long the header of the service's response may take, the connection included.
        timeout: Timeout = "2s";
    }

    /// A field of the service's response that the route's upstream receives by another name.
    #[example = "{ from: x-auth-request-user, to: x-user }"]
    struct CopySpec: "a copied field" {
        /// Its name in the service's response, as in `key: auth:NAME`.
        from: CopiedName;
        /// Its name for the upstream.
        to: CopiedName;
    }

    /// What makes a token valid: a signature, an `exp` that has not passed, and an `nbf`, if any,
    /// that has passed.
    #[instead = &[["jwks_uri", JWKS], ["jwks_url", JWKS]]]
    struct JwtSpec: "a JWT" {
        /// A file with the issuer's keys: a JSON Web Key Set. flowgate watches the file and reloads
        /// it like this file. It fetches no URLs: fetch the set with a timer.
        #[example = "issuer.json"]
        jwks: FileName;
        /// The required `iss` of the token.
        issuer: Text, else "any";
        /// The required `aud` of the token, or a list of which one must be there.
        audience: Several<Text>, else "any";
        /// The signature algorithms that are allowed. Algorithms with a shared secret (`HS256`, …)
        /// must be named.
        algorithms: Several<JwtAlgorithm>, else "all with a public key";
        /// The header field that contains the token and nothing else.
        header: FieldName, else "`authorization`, after `Bearer`";
        /// The cookie that contains the token.
        cookie: Text, else "–";
        /// How far the issuer's clock may differ, for `exp` and `nbf`.
        leeway: Period<0, { 10 * MINUTE }> = "60s";
    }
}

/// A list of networks, of which a file may have more.
pub(in crate::config) type NetworksSpec = Many<Either<Network, NetworkFileSpec>>;

keys! {
    /// An entry of a list of addresses and networks.
    #[example = "{ file: networks.txt }"]
    struct NetworkFileSpec: "a file of networks" {
        /// A file with one network or address a line; what follows a `#` is a comment. flowgate
        /// watches the file and reloads it like this file.
        #[example = "networks.txt"]
        file: FileName;
    }
}

/// A list of clients: networks, files of them, countries and autonomous systems.
pub(in crate::config) type ClientsSpec = Many<Either<Network, ClientsEntrySpec>>;

keys! {
    /// An entry of a list of clients. Write exactly one of the keys.
    #[example = "{ country: [DE, AT] }"]
    struct ClientsEntrySpec: "an entry" {
        /// A file with one network or address a line; what follows a `#` is a comment. flowgate
        /// watches the file and reloads it like this file.
        #[example = "networks.txt"]
        file: FileName, else "–";
        /// Addresses in this country (with `geo: { country }`), as in `DE`, or in one of a list.
        country: Several<CountryCode>, else "–";
        /// Addresses of this autonomous system (with `geo: { asn }`), as in `64500`, or of one of a list.
        asn: Several<AsNumber>, else "–";
    }
}

/// The long form of an entry, which may name a file.
pub(super) trait WithFile {
    /// Returns the file.
    fn file(&self) -> &Key<FileName>;

    /// Returns the file, to change it.
    fn file_mut(&mut self) -> &mut Key<FileName>;
}

impl WithFile for NetworkFileSpec {
    fn file(&self) -> &Key<FileName> {
        &self.file
    }

    fn file_mut(&mut self) -> &mut Key<FileName> {
        &mut self.file
    }
}

impl WithFile for ClientsEntrySpec {
    fn file(&self) -> &Key<FileName> {
        &self.file
    }

    fn file_mut(&mut self) -> &mut Key<FileName> {
        &mut self.file
    }
}

/// A value of an override's `when`: texts or files of networks, or a field's pattern.
pub(in crate::config) type ConditionValue =
    Either<Many<Either<Text, NetworkFileSpec>>, ConditionSpec>;

/// Returns the files that a list names.
pub(super) fn files_of<E: WithFile>(
    list: &Key<Many<Either<Network, E>>>,
) -> impl Iterator<Item = &Key<FileName>> {
    list.items().iter().filter_map(|at| file_of(&at.value))
}

/// Returns the files that a list names, to change them.
pub(super) fn files_of_mut<E: WithFile>(
    list: &mut Key<Many<Either<Network, E>>>,
) -> impl Iterator<Item = &mut Key<FileName>> {
    let items = list.at.iter_mut().flat_map(|at| &mut at.value.0.0);
    items.filter_map(|at| file_of_mut(&mut at.value))
}

fn file_of<P, E: WithFile>(entry: &Either<P, E>) -> Option<&Key<FileName>> {
    match entry {
        Either::Plain(_) => None,
        Either::Map(spec) => Some(spec.file()),
    }
}

fn file_of_mut<P, E: WithFile>(entry: &mut Either<P, E>) -> Option<&mut Key<FileName>> {
    match entry {
        Either::Plain(_) => None,
        Either::Map(spec) => Some(spec.file_mut()),
    }
}

fn files_of_when(when: &Key<ConditionValue>) -> Vec<&Key<FileName>> {
    match &when.at {
        None => Vec::new(),
        Some(At { value: Either::Map(spec), .. }) => vec![&spec.file],
        Some(At { value: Either::Plain(list), .. }) => {
            list.0.0.iter().filter_map(|at| file_of(&at.value)).collect()
        }
    }
}

fn files_of_when_mut(when: &mut Key<ConditionValue>) -> Vec<&mut Key<FileName>> {
    match &mut when.at {
        None => Vec::new(),
        Some(At { value: Either::Map(spec), .. }) => vec![&mut spec.file],
        Some(At { value: Either::Plain(list), .. }) => {
            list.0.0.iter_mut().filter_map(|at| file_of_mut(&mut at.value)).collect()
        }
    }
}

impl RouteSpec {
    /// Returns the files of networks that the route names.
    pub(super) fn network_files(&self) -> Vec<&Key<FileName>> {
        let access = self.access.value().into_iter();
        let access = access.flat_map(|access| [&access.allow, &access.deny]).flat_map(files_of);
        let rules = self.flow.items().iter().flat_map(|at| at.value.network_files());
        access.chain(rules).collect()
    }

    /// Resolves the relative names of these files from the folder of the file that they stand in.
    pub(super) fn resolve_files(&mut self, source: &Source) {
        let access = self.access.at.iter_mut().map(|at| &mut at.value);
        let lists = access.flat_map(|access| [&mut access.allow, &mut access.deny]);
        lists.flat_map(files_of_mut).for_each(|file| file.resolve(source));
        for rule in self.flow.at.iter_mut().flat_map(|at| &mut at.value.0) {
            rule.value.resolve_files(source);
        }
    }
}

impl RuleSpec {
    pub(super) fn network_files(&self) -> Vec<&Key<FileName>> {
        let except = self.except.value().into_iter();
        let except = except.flat_map(|except| files_of(&except.client_ip));
        let whens = self.overrides.items().iter().filter_map(|at| at.value.when.value());
        let conditions = whens.flat_map(|Entries(entries)| entries);
        // Any other condition with a file is an error.
        let conditions = conditions.filter(|(name, _)| name.value.0 == "client_ip");
        except.chain(conditions.flat_map(|(_, when)| files_of_when(when))).collect()
    }

    pub(super) fn resolve_files(&mut self, source: &Source) {
        self.resolve_plans(source);
        if let Some(except) = &mut self.except.at {
            files_of_mut(&mut except.value.client_ip).for_each(|file| file.resolve(source));
        }
        let overrides = self.overrides.at.iter_mut().flat_map(|at| &mut at.value.0);
        let whens = overrides.filter_map(|at| at.value.when.at.as_mut());
        for (_, when) in whens.flat_map(|at| &mut at.value.0) {
            for file in files_of_when_mut(when) {
                file.resolve(source);
            }
        }
    }
}
