//! JSON Web Tokens, signed by a key of a file (RFC 7515, 7517, 7519).

use crate::route::{ClaimValue, Identity};
use core::{fmt, time::Duration};
use http::HeaderName;
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, Validation, decode, decode_header,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse},
};
use serde_json::{Map, Value};

/// The most keys of a file.
const MOST_KEYS: usize = 100;

/// The shortest secret of HMAC, in bytes: what SHA-256 yields (RFC 7518, 3.2).
const SHORTEST_SECRET: usize = 32;

/// The names of all algorithms; those by a shared secret last.
pub const ALGORITHMS: [(&str, Algorithm); 12] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("HS256", Algorithm::HS256),
    ("HS384", Algorithm::HS384),
    ("HS512", Algorithm::HS512),
];

/// Where a request has its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// In `Authorization`, after `Bearer`.
    Bearer,
    /// In this field, alone.
    Header(HeaderName),
    /// In this cookie.
    Cookie(String),
}

/// The requirements for a token, beside a signature and a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtRules {
    /// Where it is.
    pub source: TokenSource,
    /// Its `iss`, if that matters.
    pub issuer: Option<String>,
    /// One of these must be in its `aud`; empty if that does not matter.
    pub audience: Vec<String>,
    /// The algorithms by which it may be signed; at least one.
    pub algorithms: Vec<Algorithm>,
    /// The most by which the clocks of issuer and gateway may differ.
    pub leeway: Duration,
    /// The claims that are kept, beside `sub`: each is a name, or a path of names with dots between
    /// them.
    pub claims: Vec<Box<str>>,
}

/// The keys of a JSON Web Key Set that can verify signatures.
#[derive(Clone)]
pub struct JwtKeys {
    keys: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    id: Option<String>,
    /// The algorithms that it can verify: a key is bound to its kind, whatever a token says.
    algorithms: Vec<Algorithm>,
    verifies: DecodingKey,
}

impl JwtKeys {
    /// Reads a JSON Web Key Set. Keys that are not for signatures, or of a kind that is not
    /// supported, are left out.
    ///
    /// # Errors
    /// Why the text cannot be used: no such set, no key that can be used by `algorithms`, more than
    /// 100 keys, or a secret under 32 bytes. A key is never shown.
    pub fn read(text: &str, algorithms: &[Algorithm]) -> Result<Self, &'static str> {
        let set: JwkSet = serde_json::from_str(text)
            .map_err(|_| "is not a JSON Web Key Set (`{\"keys\": […]}`)")?;
        if set.keys.len() > MOST_KEYS {
            return Err("has more than 100 keys");
        }

        let mut keys = Vec::with_capacity(set.keys.len());
        for jwk in set.keys {
            let fits: Vec<_> =
                kinds(&jwk)?.into_iter().filter(|kind| algorithms.contains(kind)).collect();

            let is_for_signatures = jwk
                .common
                .public_key_use
                .as_ref()
                .is_none_or(|its_use| *its_use == PublicKeyUse::Signature);
            if fits.is_empty() || !is_for_signatures {
                continue;
            }

            let verifies = DecodingKey::from_jwk(&jwk).map_err(|_| "has a malformed key")?;
            keys.push(Key { id: jwk.common.key_id, algorithms: fits, verifies });
        }

        if keys.is_empty() {
            return Err("has no key for the `algorithms` of this route");
        }
        Ok(Self { keys })
    }

    /// Returns how many keys can be used.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the user of a token that is valid at `now`, since the Unix epoch.
    ///
    /// # Errors
    /// Why it is not valid.
    pub fn verify(
        &self,
        token: &[u8],
        rules: &JwtRules,
        now: Duration,
    ) -> Result<Identity, &'static str> {
        let header = decode_header(token).map_err(|_| "the token is malformed")?;
        // What must be understood is not (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err("the token has extensions that are not supported");
        }

        if !rules.algorithms.contains(&header.alg) {
            return Err("the token is signed by an algorithm that is not allowed");
        }

        let is_named = |key: &&Key| match (&key.id, &header.kid) {
            (Some(id), Some(wanted)) => id == wanted,
            (None, _) | (_, None) => true,
        };
        let fit = self.keys.iter().filter(is_named);
        let mut fit = fit.filter(|key| key.algorithms.contains(&header.alg)).peekable();
        if fit.peek().is_none() {
            return Err("the token is signed by an unknown key");
        }

        let mut validation = Validation::new(header.alg);
        // The library asks the system for the time, and takes claims that are missing.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;

        let verified =
            fit.find_map(|key| decode::<Map<_, _>>(token, &key.verifies, &validation).ok());
        let claims = verified.ok_or("the token's signature is wrong")?.claims;

        check(&claims, rules, now)?;

        let kept =
            rules.claims.iter().filter_map(|name| Some((name.clone(), value(&claims, name)?)));
        let user = claims.get("sub").and_then(text).map(Into::into);
        Ok(Identity::of_token(user, kept.collect()))
    }
}

// Keys may be secrets.
impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKeys").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// Returns what a key can verify by its kind, and by its own `alg` if it has one.
fn kinds(jwk: &Jwk) -> Result<Vec<Algorithm>, &'static str> {
    let family = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms(),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            &[Algorithm::ES256]
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
            &[Algorithm::ES384]
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            AlgorithmFamily::Ed.algorithms()
        }
        AlgorithmParameters::OctetKey(key) => {
            // Four characters are three bytes.
            if key.value.trim_end_matches('=').len() * 3 / 4 < SHORTEST_SECRET {
                return Err("has a secret under 32 bytes");
            }
            AlgorithmFamily::Hmac.algorithms()
        }
        AlgorithmParameters::EllipticCurve(_)
        | AlgorithmParameters::OctetKeyPair(_)
        | AlgorithmParameters::Other(_)
        | _ => &[],
    };

    let own = jwk.common.key_algorithm;
    let is_own = |kind: &&Algorithm| {
        own.is_none_or(|own| Algorithm::try_from(own).is_ok_and(|own| own == **kind))
    };

    Ok(family.iter().filter(is_own).copied().collect())
}

/// Checks the claims that say whether a token is meant for this gateway, and when.
fn check(claims: &Map<String, Value>, rules: &JwtRules, now: Duration) -> Result<(), &'static str> {
    let [now, leeway] = [now, rules.leeway].map(|time| time.as_secs_f64());
    let expires = claims.get("exp").and_then(Value::as_f64).ok_or("the token never expires")?;
    if now >= expires + leeway {
        return Err("the token has expired");
    }

    if let Some(begins) = claims.get("nbf") {
        let begins = begins.as_f64().ok_or("the token is malformed")?;
        if now + leeway < begins {
            return Err("the token is not valid yet");
        }
    }

    let issuer = claims.get("iss").and_then(Value::as_str);
    if rules.issuer.as_deref().is_some_and(|wanted| issuer != Some(wanted)) {
        return Err("the token is of another issuer");
    }

    let is_meant = |audience: &Value| match audience {
        Value::String(one) => rules.audience.contains(one),
        Value::Array(all) => all
            .iter()
            .filter_map(Value::as_str)
            .any(|one| rules.audience.iter().any(|wanted| wanted == one)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };

    if !rules.audience.is_empty() && !claims.get("aud").is_some_and(is_meant) {
        return Err("the token is for another audience");
    }
    Ok(())
}

/// Returns the value of a claim: that of exactly this name, or else the one to which its dots lead.
fn value(claims: &Map<String, Value>, name: &str) -> Option<ClaimValue> {
    let found = claims.get(name).or_else(|| nested(claims, name))?;
    let Value::Array(values) = found else { return text(found).map(ClaimValue::of_text) };
    let texts: Option<Vec<_>> = values.iter().map(text).collect();
    texts.map(ClaimValue::of_list)
}

/// Returns what the dots of `path` lead to. A name on the way may have dots itself, as in
/// `https://example.com/claims`: shorter names are tried first.
///
/// Each step finds another object of the token, so that the token's size bounds the search.
fn nested<'c>(claims: &'c Map<String, Value>, path: &str) -> Option<&'c Value> {
    let inner = path.match_indices('.').find_map(|(dot, _)| {
        let Value::Object(inner) = claims.get(&path[..dot])? else { return None };
        nested(inner, &path[dot + 1..])
    });
    inner.or_else(|| claims.get(path))
}

/// Returns a value that is a text, a number or a truth value.
fn text(value: &Value) -> Option<Box<str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod claim_tests {
    use super::*;
    use proptest::{collection::btree_map, prelude::*};
    use serde_json::json;

    fn key(claims: &Value, name: &str) -> Option<String> {
        let Value::Object(claims) = claims else { return None };
        value(claims, name).map(|value| value.key().to_owned())
    }

    #[test]
    fn dots_lead_into_a_claim_unless_one_has_exactly_this_name() {
        let claims = json!({
            "https://example.com/tenant": "acme",
            "https://example.com/app": { "plan": "gold" },
            "realm_access": { "roles": ["viewer", "admin"] },
            "a.b": 1, "a": { "b": 2, "c": { "d": true }, "e.f": 3 },
            "x.y": null, "x": { "y": "never" },
            "p": { "q.r": "late", "q": { "r": "early" } },
        });
        for (name, expected) in [
            ("https://example.com/tenant", Some("acme")),
            ("https://example.com/app.plan", Some("gold")),
            ("realm_access.roles", Some("admin,viewer")),
            ("a.b", Some("1")),
            ("a.c.d", Some("true")),
            ("a.e.f", Some("3")),
            ("p.q.r", Some("early")),
            ("x.y", None),
            ("a.c", None),
            ("a", None),
            ("a.", None),
            (".a", None),
            ("a.b.c", None),
            ("realm_access.roles.0", None),
        ] {
            assert_eq!(key(&claims, name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn the_values_of_a_list_are_one_key_whatever_their_order() {
        for (list, expected) in [
            (json!(["b", "a"]), Some("a,b")),
            (json!(["a", "b"]), Some("a,b")),
            (json!([10, 9, true]), Some("10,9,true")),
            (json!(["a"]), Some("a")),
            (json!([]), Some("")),
            (json!(["a", null]), None),
            (json!(["a", ["b"]]), None),
            (json!([{ "a": 1 }]), None),
        ] {
            assert_eq!(key(&json!({ "roles": list }), "roles").as_deref(), expected, "{list}");
        }
    }

    /// Objects in objects, whose names and paths of names collide often.
    fn objects() -> impl Strategy<Value = Value> {
        let name = "[ab](\\.[ab])?";
        let leaf = prop_oneof![
            "[xy]".prop_map(Value::from),
            any::<u8>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 24, 3, move |inner| {
            btree_map(name, inner, 0..4).prop_map(|map| map.into_iter().collect::<Value>())
        })
    }

    proptest! {
        #[test]
        fn a_nested_claim_is_the_one_that_a_walk_finds(
            claims in btree_map("[ab](\\.[ab])?", objects(), 0..4),
            name in "[ab](\\.[ab]){0,4}",
        ) {
            let claims: Map<String, Value> = claims.into_iter().collect();
            let walked = name.split('.').try_fold(None, |at: Option<&Value>, step| {
                let object = at.map_or(Some(&claims), Value::as_object)?;
                Some(Some(object.get(step)?))
            });
            // What stands under the whole name comes first, then what a walk by single names finds.
            let expected = claims.get(&name).or_else(|| walked.flatten());
            let found = value(&claims, &name);
            if let Some(expected) = expected {
                prop_assert_eq!(found, text(expected).map(ClaimValue::of_text));
            } else if let Some(found) = found {
                // A name on the way has dots: some object has the rest of the name as a key.
                let texts = all(&claims);
                prop_assert!(texts.contains(&found.key().to_owned()));
            }
        }

        #[test]
        fn a_shuffled_list_is_the_same_key(
            mut values in proptest::collection::vec("[a-c,]{0,3}", 0..6),
        ) {
            let claim = |values: &[String]| {
                ClaimValue::of_list(values.iter().map(|value| value.as_str().into()).collect())
            };
            let one = claim(&values);
            values.reverse();
            prop_assert_eq!(&one, &claim(&values));
            values.sort();
            prop_assert_eq!(one.key(), values.join(","));
            prop_assert_eq!(one.values().len(), values.len());
        }
    }

    fn all(claims: &Map<String, Value>) -> Vec<String> {
        let each = claims.values().flat_map(|value| {
            let inner = value.as_object().map(all).unwrap_or_default();
            inner.into_iter().chain(text(value).map(String::from))
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use jsonwebtoken::{EncodingKey, Header, encode};
    use rcgen::{
        KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData,
        SignatureAlgorithm,
    };
    use serde_json::json;

    const NOW: Duration = Duration::from_secs(1_795_000_000);
    const SECRET: &[u8] = b"a secret of thirty-two bytes ...";

    fn base64(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// A key, and its public half as a JWK.
    fn pair(kind: &'static SignatureAlgorithm, id: &str) -> (EncodingKey, Value) {
        let pair = KeyPair::generate_for(kind).unwrap();
        let public = pair.der_bytes();
        if *kind == PKCS_ED25519 {
            let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": base64(public), "kid": id });
            return (EncodingKey::from_ed_der(pair.serialized_der()), jwk);
        }
        let (x, y) = public[1..].split_at(public.len() / 2);
        let curve = if x.len() == 32 { "P-256" } else { "P-384" };
        let jwk = json!({ "kty": "EC", "crv": curve, "x": base64(x), "y": base64(y), "kid": id });
        (EncodingKey::from_ec_der(pair.serialized_der()), jwk)
    }

    fn secret(id: &str) -> Value {
        json!({ "kty": "oct", "k": base64(SECRET), "kid": id })
    }

    fn rules(algorithms: &[Algorithm]) -> JwtRules {
        JwtRules {
            source: TokenSource::Bearer,
            issuer: Some("https://issuer.example".to_owned()),
            audience: vec!["shop".to_owned(), "cart".to_owned()],
            algorithms: algorithms.to_vec(),
            leeway: Duration::from_mins(1),
            claims: ["tenant", "level", "roles"].map(Into::into).into(),
        }
    }

    fn keys(list: &[Value], algorithms: &[Algorithm]) -> JwtKeys {
        JwtKeys::read(&json!({ "keys": list }).to_string(), algorithms).unwrap()
    }

    fn claims() -> Value {
        let now = NOW.as_secs();
        json!({
            "sub": "alice", "iss": "https://issuer.example", "aud": ["other", "shop"], "exp": now + 10,
            "nbf": now, "tenant": "gold", "level": 3, "roles": ["a"],
        })
    }

    fn token(algorithm: Algorithm, id: Option<&str>, key: &EncodingKey, claims: &Value) -> String {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(algorithm) };
        encode(&header, claims, key).unwrap()
    }

    #[test]
    fn a_signed_token_says_who_the_client_is() {
        for (algorithm, kind) in [
            (Algorithm::ES256, &PKCS_ECDSA_P256_SHA256),
            (Algorithm::ES384, &PKCS_ECDSA_P384_SHA384),
            (Algorithm::EdDSA, &PKCS_ED25519),
        ] {
            let (key, jwk) = pair(kind, "a");
            let keys = keys(&[secret("other"), jwk], &[algorithm]);
            assert_eq!(keys.count(), 1);
            for id in [Some("a"), None] {
                let token = token(algorithm, id, &key, &claims());
                let identity = keys.verify(token.as_bytes(), &rules(&[algorithm]), NOW).unwrap();
                assert_eq!(identity.user().map(|user| &**user), Some("alice"));
                let claim = |name| identity.claim(name).map(ClaimValue::key);
                assert_eq!(claim("tenant"), Some("gold"));
                assert_eq!(claim("level"), Some("3"));
                assert_eq!(claim("roles"), Some("a"));
            }
        }
    }

    #[test]
    fn a_token_that_another_key_signed_or_that_was_changed_is_not_valid() {
        let (key, jwk) = pair(&PKCS_ECDSA_P256_SHA256, "a");
        let (other, _) = pair(&PKCS_ECDSA_P256_SHA256, "a");
        let rules = rules(&[Algorithm::ES256]);
        let keys = keys(&[jwk], &rules.algorithms);
        let verify = |token: &str| keys.verify(token.as_bytes(), &rules, NOW);
        let whole = token(Algorithm::ES256, Some("a"), &key, &claims());
        assert!(verify(&whole).is_ok());
        let forged = token(Algorithm::ES256, Some("a"), &other, &claims());
        assert_eq!(verify(&forged), Err("the token's signature is wrong"));
        let unknown = token(Algorithm::ES256, Some("b"), &key, &claims());
        assert_eq!(verify(&unknown), Err("the token is signed by an unknown key"));
        let parts: Vec<_> = whole.split('.').collect();
        let mut changed = claims();
        changed["sub"] = "bob".into();
        let changed = base64(changed.to_string().as_bytes());
        let changed = format!("{}.{changed}.{}", parts[0], parts[2]);
        assert_eq!(verify(&changed), Err("the token's signature is wrong"));
        for malformed in
            ["", "a.b", "a.b.c", &format!("{}.{}.", parts[0], parts[1]), &whole[..whole.len() - 2]]
        {
            assert!(verify(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn no_token_chooses_how_it_is_verified() {
        let (_, jwk) = pair(&PKCS_ECDSA_P256_SHA256, "a");
        let all: Vec<_> = ALGORITHMS.map(|(_, algorithm)| algorithm).into();
        let public = jwk.to_string();
        let keys = keys(&[jwk, secret("s")], &all);
        let part = |value: Value| base64(value.to_string().as_bytes());
        let verify = |token: &str| keys.verify(token.as_bytes(), &rules(&all), NOW);
        for alg in ["none", "None", "NONE", "nOnE", ""] {
            let token = format!("{}.{}.", part(json!({ "alg": alg })), part(claims()));
            assert_eq!(verify(&token), Err("the token is malformed"), "{alg}");
        }
        // Signed by HMAC with what everybody knows.
        let hmac = EncodingKey::from_secret(public.as_bytes());
        for id in [Some("a"), Some("s"), None] {
            assert!(verify(&token(Algorithm::HS256, id, &hmac, &claims())).is_err());
        }
        let own = EncodingKey::from_secret(SECRET);
        assert!(verify(&token(Algorithm::HS256, Some("s"), &own, &claims())).is_ok());
        let only_public = keys.verify(
            token(Algorithm::HS256, Some("s"), &own, &claims()).as_bytes(),
            &rules(&[Algorithm::ES256]),
            NOW,
        );
        assert_eq!(only_public, Err("the token is signed by an algorithm that is not allowed"));
        let mut header = Header::new(Algorithm::HS256);
        header.crit = Some(vec!["b64".to_owned()]);
        let critical = encode(&header, &claims(), &own).unwrap();
        assert_eq!(verify(&critical), Err("the token has extensions that are not supported"));
    }

    #[test]
    fn times_issuer_and_audience_are_checked() {
        let all = [Algorithm::HS256];
        let keys = keys(&[secret("s")], &all);
        let key = EncodingKey::from_secret(SECRET);
        let now = NOW.as_secs();
        for (name, value, expected) in [
            ("exp", json!(now - 59), Ok(())),
            ("exp", json!(now - 60), Err("the token has expired")),
            ("exp", json!("never"), Err("the token never expires")),
            ("exp", Value::Null, Err("the token never expires")),
            ("exp", json!(1.0e300), Ok(())),
            ("nbf", json!(now + 60), Ok(())),
            ("nbf", json!(now + 61), Err("the token is not valid yet")),
            ("nbf", json!("x"), Err("the token is malformed")),
            ("iss", json!("https://issuer.example/"), Err("the token is of another issuer")),
            ("iss", Value::Null, Err("the token is of another issuer")),
            ("aud", json!("cart"), Ok(())),
            ("aud", json!("other"), Err("the token is for another audience")),
            ("aud", json!([]), Err("the token is for another audience")),
            ("aud", json!({ "shop": 1 }), Err("the token is for another audience")),
        ] {
            let mut claims = claims();
            claims[name] = value;
            let token = token(Algorithm::HS256, None, &key, &claims);
            let verified = keys.verify(token.as_bytes(), &rules(&all), NOW).map(|_| ());
            assert_eq!(verified, expected, "{name}: {}", claims[name]);
        }
        // What the rules do not ask for may be anything.
        let any = JwtRules { issuer: None, audience: Vec::new(), ..rules(&all) };
        let token = token(Algorithm::HS256, None, &key, &json!({ "exp": now + 1, "aud": "x" }));
        let identity = keys.verify(token.as_bytes(), &any, NOW).unwrap();
        assert_eq!((identity.user(), identity.claim("tenant")), (None, None));
    }

    #[test]
    fn a_set_of_keys_that_cannot_be_used_says_why() {
        let (_, public) = pair(&PKCS_ECDSA_P256_SHA256, "a");
        let with = |name: &str, value: &str| {
            let mut jwk = public.clone();
            jwk[name] = value.into();
            json!({ "keys": [jwk] }).to_string()
        };
        let none = "has no key for the `algorithms` of this route";
        for (text, expected) in [
            ("{".to_owned(), "is not a JSON Web Key Set (`{\"keys\": […]}`)"),
            (public.to_string(), "is not a JSON Web Key Set (`{\"keys\": […]}`)"),
            (json!({ "keys": [] }).to_string(), none),
            (with("use", "enc"), none),
            (with("alg", "ES384"), none),
            (with("kty", "new"), none),
            (with("x", "?"), "has a malformed key"),
            (
                json!({ "keys": [{ "kty": "oct", "k": base64(&SECRET[1..]) }] }).to_string(),
                "has a secret under 32 bytes",
            ),
            (json!({ "keys": vec![public.clone(); 101] }).to_string(), "has more than 100 keys"),
        ] {
            let read = JwtKeys::read(&text, &[Algorithm::ES256]);
            assert_eq!(read.map(|keys| keys.count()), Err(expected), "{text}");
        }
        assert!(!format!("{:?}", keys(&[secret("s")], &[Algorithm::HS256])).contains("thirty"));
    }
}
