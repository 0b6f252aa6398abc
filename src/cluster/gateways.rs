//! The number of gateways that share the store, as far as this one knows.
//!
//! The store counts the gateways that have registered within a lease. A store that has lost its
//! memory counts only the gateways that have come back. If it fails again, the first would use the
//! whole limit, the second half of it: `N + N/2 + N/3 + …`. So when the store does not know this
//! gateway, and with each new connection, the divisor only grows until all gateways could return.

use crate::flow::Instant;
use core::time::Duration;
use redis::Value;

/// The number of gateways.
#[derive(Debug)]
pub(super) struct Gateways {
    /// The least divisor, as configured.
    least: u32,
    /// The number in the store's latest answer; before the first, the configured one.
    count: u32,
    /// Among how many gateways rules are divided.
    divisor: u32,
    /// The time in which other gateways return to a store that has forgotten them.
    absence: Duration,
    /// Until when the divisor does not shrink.
    until: Instant,
}

impl Gateways {
    /// Returns the number before the first answer.
    pub(super) fn new(least: u32, absence: Duration) -> Self {
        let least = least.max(1);
        Self { least, count: least, divisor: least, absence, until: Instant::EPOCH }
    }

    /// Takes the number in an answer. `may_forget` if the store may have forgotten other gateways
    /// since the answer before.
    pub(super) fn update(&mut self, gateways: u32, may_forget: bool, now: Instant) {
        self.count = gateways.max(1);
        if may_forget {
            self.until = now + self.absence;
        }
        let most = if now < self.until { self.divisor } else { self.least };
        self.divisor = self.count.max(most);
    }

    /// Returns the number of gateways that the store has seen lately.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns among how many gateways rules are divided.
    pub(super) const fn divisor(&self) -> u32 {
        self.divisor
    }
}

/// The answer of `hello.lua`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HelloReply {
    /// The gateways that the store has seen lately, this one among them.
    pub(super) gateways: u32,
    /// The secret of the fingerprints.
    pub(super) secret: [u64; 2],
    /// True if the store did not know this gateway before.
    pub(super) is_unknown: bool,
    /// The key of the secret, if its value was invalid and the script has replaced it.
    pub(super) rewritten: Option<String>,
    /// The last text of [`Store::change`](super::Store::change); empty if nothing is known of it.
    pub(super) change: Vec<u8>,
}

impl HelloReply {
    /// Reads an answer; `None` if it is malformed.
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

    const ABSENCE: Duration = Duration::from_secs(12);

    /// Returns the divisor after each answer of the store: second, number, and whether it did not
    /// know this gateway.
    fn divisors(least: u32, answers: &[(u64, u32, bool)]) -> Vec<u32> {
        let mut gateways = Gateways::new(least, ABSENCE);
        let divisor = |(second, count, is_unknown): &(u64, u32, bool)| {
            let now = Instant::EPOCH + Duration::from_secs(100 + second);
            gateways.update(*count, *is_unknown, now);
            gateways.divisor()
        };
        answers.iter().map(divisor).collect()
    }

    #[test]
    fn a_store_without_memory_divides_as_before_until_all_could_return() {
        let answers = [(0, 3, true), (60, 1, true), (63, 2, false), (71, 2, false), (72, 2, false)];
        assert_eq!(divisors(1, &answers), [3, 3, 3, 3, 2]);
    }

    #[test]
    fn a_store_that_loses_its_memory_again_and_again_is_believed_when_it_has_kept_it() {
        let answers = [(0, 3, true), (60, 1, true), (70, 1, true), (80, 1, true), (92, 1, false)];
        assert_eq!(divisors(1, &answers), [3, 3, 3, 3, 1]);
    }

    #[test]
    fn more_gateways_count_at_once_and_fewer_do_if_the_store_knows_them() {
        let answers = [(0, 1, true), (1, 5, false), (20, 3, false), (21, 4, false)];
        assert_eq!(divisors(1, &answers), [1, 5, 3, 4]);
    }

    #[test]
    fn what_the_file_says_is_the_least_that_divides() {
        assert_eq!(divisors(3, &[(0, 1, true), (50, 1, false), (51, 4, false)]), [3, 3, 4]);
        let mut gateways = Gateways::new(0, ABSENCE);
        assert_eq!((gateways.count(), gateways.divisor()), (1, 1));
        gateways.update(0, false, Instant::EPOCH);
        assert_eq!((gateways.count(), gateways.divisor()), (1, 1));
    }
}

#[cfg(test)]
mod hello_tests {
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
