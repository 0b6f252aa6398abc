//! The routes of one path whose conditions nginx asks in turn: the first that holds decides.
//!
//! A route holds for requests that pass all of its tests, and the one with more tests comes first. So
//! a set of tests is a route, and what decides for a request that passes these and no other is what
//! the route does. Sets that other routes decide equally for are left out.

use super::condition::{Condition, Test};
use core::cmp::Reverse;

/// The most different tests of a path.
const MOST_TESTS: usize = 6;

/// Tests, and the index of the rule that decides for requests that pass them; `None` is the path's
/// own action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub tests: Vec<Test>,
    pub rule: Option<usize>,
}

/// A rule's condition as a test of the list.
#[derive(Clone, Copy, Debug)]
struct Rule {
    test: usize,
    is_negated: bool,
    index: usize,
}

/// The rules of a path, of which the last one always holds, if any does.
#[derive(Debug, Default)]
struct Rules {
    tests: Vec<Test>,
    asked: Vec<Rule>,
    last: Option<usize>,
}

/// Returns the routes for `conditions`, in the order of the file. `lets_in` says of each whether its
/// requests get anything but an error.
///
/// # Errors
/// No routes decide the same; the text says why.
pub(super) fn variants(
    conditions: &[&Condition],
    lets_in: impl Fn(usize) -> bool,
) -> Result<Vec<Variant>, String> {
    let rules = Rules::read(conditions)?;
    rules.check(lets_in)?;

    let mut sets: Vec<u32> = (0..1_u32 << rules.tests.len()).collect();
    sets.sort_by_key(|set| set.count_ones());

    let mut kept: Vec<(u32, Variant)> = Vec::new();
    for set in sets {
        let Some(tests) = rules.joined(set) else { continue };
        let rule = rules.decide(set);
        let below = kept.iter().filter(|(other, _)| other & set == *other);
        let known =
            below.max_by_key(|(other, variant)| (rank(&variant.tests), order(*other, variant)));
        if known.is_none_or(|(_, known)| known.rule != rule) {
            kept.push((set, Variant { tests, rule }));
        }
    }

    kept.sort_by_key(|(set, variant)| Reverse(order(*set, variant)));
    Ok(kept.into_iter().map(|(_, variant)| variant).collect())
}

/// Returns how early a route stands in the file.
fn order(set: u32, variant: &Variant) -> (u32, Reverse<usize>) {
    (set.count_ones(), Reverse(variant.rule.unwrap_or(usize::MAX)))
}

/// Returns how specific tests are, as flowgate compares routes.
fn rank(tests: &[Test]) -> (bool, usize, usize) {
    let count = |is_meant: fn(&Test) -> bool| tests.iter().filter(|test| is_meant(test)).count();
    let has_method = count(|test| matches!(test, Test::Method(_))) > 0;
    let headers = count(|test| matches!(test, Test::Header(..)));
    (has_method, headers, count(|test| matches!(test, Test::Query(..))))
}

impl Rules {
    fn read(conditions: &[&Condition]) -> Result<Self, String> {
        let mut all = Self::default();
        for (index, condition) in conditions.iter().enumerate() {
            let (test, is_negated) = match condition {
                Condition::Always(false) => continue,
                Condition::Always(true) => {
                    all.last = Some(index);
                    return Ok(all);
                }
                Condition::Request { test, is_negated } => (test, *is_negated),
                Condition::Clients { .. } => return Err("no match asks for an address".into()),
            };

            let at = all.tests.iter().position(|known| known == test);
            let at = at.unwrap_or_else(|| {
                all.tests.push(test.clone());
                all.tests.len() - 1
            });
            if at == MOST_TESTS {
                return Err(format!("a path has more than {MOST_TESTS} conditions"));
            }
            all.asked.push(Rule { test: at, is_negated, index });
        }
        Ok(all)
    }

    /// Rejects conditions of one field that no set of tests tells apart.
    fn check(&self, lets_in: impl Fn(usize) -> bool) -> Result<(), String> {
        for (at, rule) in self.asked.iter().enumerate() {
            for later in &self.asked[at + 1..] {
                let test = &self.tests[rule.test];
                let other = &self.tests[later.test];
                // Lists of methods have those in common.
                let is_same_field = rule.test != later.test
                    && !matches!(test, Test::Method(_))
                    && is_of_one_field(test, other);
                // Where both hold, the one that is not negated decides here.
                let is_unclear = rule.is_negated && (later.is_negated || lets_in(later.index));
                if is_same_field && is_unclear {
                    return Err("two conditions ask for the same field".into());
                }
            }
        }
        Ok(())
    }

    /// Returns the tests of a set as one route has them, or `None` if no request passes all, or no
    /// match has them.
    fn joined(&self, set: u32) -> Option<Vec<Test>> {
        let mut joined: Vec<Test> = Vec::new();
        for (_, test) in self.tests.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1) {
            match (test, joined.iter_mut().find(|other| is_of_one_field(other, test))) {
                (_, None) => joined.push(test.clone()),
                (Test::Method(methods), Some(Test::Method(known))) => {
                    known.retain(|method| methods.contains(method));
                    if known.is_empty() {
                        return None;
                    }
                }
                (_, Some(_)) => return None,
            }
        }
        Some(joined)
    }

    /// Returns the rule for requests that pass the tests of a set and no other.
    fn decide(&self, set: u32) -> Option<usize> {
        let passes = |test: usize| set >> test & 1 == 1;
        let is_asked_otherwise = |test: usize| {
            let other = |(at, other): (usize, &Test)| {
                let is_field = matches!(other, Test::Header(..) | Test::Query(..));
                at != test && passes(at) && is_field && is_of_one_field(other, &self.tests[test])
            };
            self.tests.iter().enumerate().any(other)
        };

        let holds = |rule: &&Rule| {
            if rule.is_negated {
                !passes(rule.test) && !is_asked_otherwise(rule.test)
            } else {
                passes(rule.test)
            }
        };
        self.asked.iter().find(holds).map(|rule| rule.index).or(self.last)
    }
}

/// Reports whether a match has at most one of two tests.
fn is_of_one_field(one: &Test, other: &Test) -> bool {
    match (one, other) {
        (Test::Method(_), Test::Method(_)) => true,
        (Test::Header(one, _), Test::Header(other, _))
        | (Test::Query(one, _), Test::Query(other, _)) => one == other,
        (Test::Method(_) | Test::Header(..) | Test::Query(..), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::condition::Values;
    use proptest::prelude::*;

    const METHODS: [&str; 3] = ["GET", "POST", "PUT"];

    /// A request: a method, and which of two fields have the value that is asked for.
    type Request = (usize, [bool; 2], bool);

    fn holds(test: &Test, request: &Request) -> bool {
        match test {
            Test::Method(methods) => methods.iter().any(|method| method == METHODS[request.0]),
            Test::Header(name, _) => request.1[usize::from(name == "b")],
            Test::Query(..) => request.2,
        }
    }

    fn test() -> impl Strategy<Value = Test> {
        let value = || Values::Equal("x".into());
        prop_oneof![
            prop::collection::btree_set(0..METHODS.len(), 1..3).prop_map(|methods| Test::Method(
                methods.into_iter().map(|at| METHODS[at].to_owned()).collect()
            )),
            Just(Test::Header("a".into(), value())),
            Just(Test::Header("b".into(), value())),
            Just(Test::Query("q".into(), value())),
        ]
    }

    fn condition() -> impl Strategy<Value = Condition> {
        prop_oneof![
            8 => (test(), any::<bool>())
                .prop_map(|(test, is_negated)| Condition::Request { test, is_negated }),
            1 => any::<bool>().prop_map(Condition::Always),
        ]
    }

    /// Returns what the first condition that holds decides.
    fn expected(conditions: &[Condition], request: &Request) -> Option<usize> {
        conditions.iter().position(|condition| match condition {
            Condition::Always(value) => *value,
            Condition::Request { test, is_negated } => holds(test, request) != *is_negated,
            Condition::Clients { .. } => false,
        })
    }

    proptest! {
        #[test]
        fn the_first_condition_that_holds_decides(
            conditions in prop::collection::vec(condition(), 0..5),
        ) {
            let all: Vec<_> = conditions.iter().collect();
            let found = variants(&all, |_| true).unwrap();
            for number in 0..24 {
                let request = (number % 3, [number & 8 == 0, number & 16 == 0], number % 2 == 0);
                let fitting = found.iter().filter(|variant| variant.tests.iter().all(|test| holds(test, &request)));
                // Of several equal ones, the last is taken: so the file is read from its end.
                let all: Vec<_> = fitting.collect();
                let chosen = all.into_iter().rev().max_by_key(|variant| rank(&variant.tests));
                let chosen = chosen.map(|variant| variant.rule);
                prop_assert_eq!(chosen, Some(expected(&conditions, &request)), "{:?}", found);
            }
        }
    }

    #[test]
    fn a_path_without_conditions_is_one_route() {
        assert_eq!(variants(&[], |_| true), Ok(vec![Variant { tests: Vec::new(), rule: None }]));
    }

    #[test]
    fn conditions_of_one_field_are_distinguished_or_rejected() {
        let of = |value: &str, is_negated| Condition::Request {
            test: Test::Header("a".into(), Values::Equal(value.into())),
            is_negated,
        };
        let rules = |all: &[&Condition], lets_in| {
            variants(all, |_| lets_in).map(|all| all.iter().map(|one| one.rule).collect::<Vec<_>>())
        };
        let one = of("x", false);
        let two = of("y", false);
        assert_eq!(rules(&[&one, &two], true), Ok(vec![Some(0), Some(1), None]));
        let filled = of("z", true);
        let other = of("q", true);
        assert_eq!(rules(&[&filled, &one], false), Ok(vec![Some(1), None, Some(0)]));
        assert!(rules(&[&filled, &one], true).is_err());
        assert!(rules(&[&filled, &other], false).is_err());
    }
}
