//! Which clients may use a route: by address, and by their credentials.

use super::{
    NetworksSpec,
    keys::keys,
    leaf::{FieldName, FileName, JwtAlgorithm, Period, SECOND, Text},
};
use crate::config::decode::Several;

const JWKS: &str =
    "write `jwks: issuer.json`: flowgate fetches no URLs, so save the key set in a file";

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

    /// Which passwords or tokens a client needs. Clients without one get 401, and no rule counts
    /// them.
    struct AuthSpec: "auth" {
        /// A file of users and bcrypt hashes, as `htpasswd -B` writes it. A request needs the
        /// password of one of them (`Authorization: Basic`). flowgate watches the file and reloads
        /// it like this file.
        #[help = "write the name of a file that `htpasswd -B` makes, as in `basic: users.htpasswd`"]
        basic: FileName, else "–";
        /// A token that one of these keys has signed (JWT). With `basic`, either is enough.
        jwt: Box<JwtSpec>, else "–";
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
