//! Which clients may use a route: by address, and by their credentials.

use super::{
    NetworksSpec,
    keys::keys,
    leaf::{
        AuthUrl, CheckPath, CopiedName, FieldName, FileName, JwtAlgorithm, Name, Period, SECOND,
        Text, Timeout,
    },
};
use crate::config::decode::Several;

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
    ["response_headers", "copy"],
    ["server", "url"],
    ["service", "upstream"],
    ["uri", "path"],
];

const MINUTE: u64 = 60 * SECOND;

keys! {
    /// Which clients may use the route, by their address: those in `allow` (without it, all),
    /// except those in `deny`. `deny` wins, whatever the order. All other clients get 403, and no
    /// rule counts them.
    struct AccessSpec: "access" {
        /// Addresses and networks that may use the route.
        allow: NetworksSpec, else "all";
        /// Addresses and networks that may not use the route.
        deny: NetworksSpec, else "none";
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
        /// Header fields of the service's response that the route's upstream receives. flowgate
        /// removes what the client sends in these fields, whether the service sends them or not.
        copy: Several<CopiedName>, else "none";
        /// How long the header of the service's response may take, the connection included.
        timeout: Timeout = "2s";
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
