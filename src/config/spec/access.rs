//! Who may use a route: by address, and by what a client proves to be.

use super::{
    keys::keys,
    leaf::{FieldName, FileName, JwtAlgorithm, Network, Period, SECOND, Text},
};
use crate::config::decode::Several;

const MINUTE: u64 = 60 * SECOND;

keys! {
    /// Which clients may use the route, by their address: those in `allow`, or all if it is not
    /// written, except those in `deny`. `deny` wins, whatever the order. All others get 403, and no
    /// rule counts them.
    struct AccessSpec: "access" {
        /// Addresses and networks that may use the route.
        allow: Several<Network>, else "all";
        /// Addresses and networks that may not.
        deny: Several<Network>, else "none";
    }

    /// What a client must prove before the rules are asked: all others get 401.
    struct AuthSpec: "auth" {
        /// A file of users and bcrypt hashes, as `htpasswd -B` writes it: a request needs the
        /// password of one of them (`Authorization: Basic`). It is watched and reloaded like this
        /// file.
        basic: FileName, else "–";
        /// A token that is signed by one of these keys (JWT). With `basic`, either is enough.
        jwt: Box<JwtSpec>, else "–";
    }

    /// What a token must be: signed, with `exp`, not expired, and not before its `nbf`.
    struct JwtSpec: "a JWT" {
        /// A file with the issuer's keys: a JSON Web Key Set. It is watched and reloaded like this
        /// file. There are no URLs: fetch the set by a timer.
        jwks: FileName;
        /// The token's `iss`.
        issuer: Text, else "any";
        /// The token's `aud`, or one of them.
        audience: Several<Text>, else "any";
        /// How it may be signed. Those by a shared secret (`HS256`, …) must be named.
        algorithms: Several<JwtAlgorithm>, else "all with a public key";
        /// The field that has it, alone.
        header: FieldName, else "`authorization`, after `Bearer`";
        /// The cookie that has it.
        cookie: Text, else "–";
        /// How far the issuer's clock may differ, for `exp` and `nbf`.
        leeway: Period<0, { 10 * MINUTE }> = "60s";
    }
}
