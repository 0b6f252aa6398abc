//! The store's answer to a registration.

use redis::Value;

/// The answer of `hello.lua`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HelloReply {
    /// The gateways that the store has seen lately, this one among them.
    pub(super) gateways: u32,
    /// The secret of the fingerprints.
    pub(super) secret: [u64; 2],
    /// Whether the store did not know this gateway before.
    pub(super) is_unknown: bool,
    /// The key of the secret if its value was none, and the script has written it anew.
    pub(super) rewritten: Option<String>,
    /// What [`Store::change`](super::Store::change) wrote last; empty if nothing is known of it.
    pub(super) change: Vec<u8>,
}

impl HelloReply {
    /// Reads an answer; `None` if it makes no sense.
    pub(super) fn read(answer: &Value) -> Option<Self> {
        let Value::Array(answer) = answer else { return None };
        let [
            Value::Int(count),
            Value::BulkString(secret),
            Value::Int(added),
            Value::BulkString(rewritten),
            Value::BulkString(change),
        ] = &answer[..]
        else {
            return None;
        };
        let (high, low) = str::from_utf8(secret).ok()?.split_at_checked(16)?;
        let parse = |digits| u64::from_str_radix(digits, 16).ok();
        let gateways = u32::try_from(u64::try_from(*count).ok()?).unwrap_or(u32::MAX);
        let rewritten = str::from_utf8(rewritten).ok().filter(|key| !key.is_empty());
        Some(Self {
            gateways,
            secret: [parse(high)?, parse(low)?],
            is_unknown: *added > 0,
            rewritten: rewritten.map(str::to_owned),
            change: change.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_five_values_of_which_one_is_a_secret_of_128_bits() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let answer = |count, secret: &str, added| {
            let values = [Value::Int(count), text(secret), Value::Int(added), text(""), text("7")];
            Value::Array(values.into())
        };
        let digits = "0123456789abcdef00000000000000ff";
        let secret = [0x0123_4567_89ab_cdef, 255];
        let reply = |is_unknown, rewritten: Option<&str>| {
            Some(HelloReply {
                gateways: 3,
                secret,
                is_unknown,
                rewritten: rewritten.map(str::to_owned),
                change: b"7".into(),
            })
        };
        assert_eq!(HelloReply::read(&answer(3, digits, 1)), reply(true, None));
        assert_eq!(HelloReply::read(&answer(3, digits, 0)), reply(false, None));
        let rewritten =
            vec![Value::Int(3), text(digits), Value::Int(0), text("a:secret"), text("7")];
        assert_eq!(HelloReply::read(&Value::Array(rewritten)), reply(false, Some("a:secret")));
        for nonsense in [
            answer(-1, digits, 0),
            answer(3, &digits[..16], 0),
            answer(3, &digits.replace('f', "g"), 0),
            answer(3, "0123456789abcdé", 0),
            Value::Array(vec![Value::Int(3)]),
            Value::Nil,
        ] {
            assert_eq!(HelloReply::read(&nonsense), None, "{nonsense:?}");
        }
    }
}
