//! The store's answer to a greeting.

use redis::Value;

/// What `hello.lua` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The gateways that the store has seen lately, this one among them.
    pub(super) gateways: u32,
    /// The secret of the fingerprints.
    pub(super) secret: [u64; 2],
    /// Whether the store did not know this gateway before.
    pub(super) is_unknown: bool,
}

impl Told {
    /// Reads an answer; `None` if it makes no sense.
    pub(super) fn read(answer: &Value) -> Option<Self> {
        let Value::Array(answer) = answer else { return None };
        let [Value::Int(count), Value::BulkString(secret), Value::Int(added)] = &answer[..] else {
            return None;
        };
        let (high, low) = str::from_utf8(secret).ok()?.split_at_checked(16)?;
        let parse = |digits| u64::from_str_radix(digits, 16).ok();
        let gateways = u32::try_from(u64::try_from(*count).ok()?).unwrap_or(u32::MAX);
        Some(Self { gateways, secret: [parse(high)?, parse(low)?], is_unknown: *added > 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_three_values_of_which_one_is_a_secret_of_128_bits() {
        let answer = |count, secret: &str, added| {
            let secret = Value::BulkString(secret.as_bytes().to_vec());
            Value::Array(vec![Value::Int(count), secret, Value::Int(added)])
        };
        let digits = "0123456789abcdef00000000000000ff";
        let told = Told { gateways: 3, secret: [0x0123_4567_89ab_cdef, 255], is_unknown: true };
        assert_eq!(Told::read(&answer(3, digits, 1)), Some(told));
        assert_eq!(Told::read(&answer(3, digits, 0)), Some(Told { is_unknown: false, ..told }));
        for nonsense in [
            answer(-1, digits, 0),
            answer(3, &digits[..16], 0),
            answer(3, &digits.replace('f', "g"), 0),
            answer(3, "0123456789abcdé", 0),
            Value::Array(vec![Value::Int(3)]),
            Value::Nil,
        ] {
            assert_eq!(Told::read(&nonsense), None, "{nonsense:?}");
        }
    }
}
