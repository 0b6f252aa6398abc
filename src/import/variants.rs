//! The routes of one path, whose requests are decided by the tests that they pass.
//!
//! A route holds for requests that pass all of its tests, and the one with more tests comes first. So
//! a set of tests is a route, and what decides for a request that passes these and no other is what
//! the route does. Sets that other routes decide equally for are left out.

use super::{
    condition::{ANY_SUBJECT, Test, Values},
    maps::compiled,
};
use core::cmp::Reverse;

/// The most different tests of a path.
pub(super) const MOST_TESTS: usize = 8;

/// Tests, and what decides for requests that pass them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variant<D> {
    pub tests: Vec<Test>,
    pub decision: D,
}

/// A set of tests with its route.
#[derive(Clone, Debug)]
struct Kept<D> {
    set: u32,
    variant: Variant<D>,
}

/// Returns the routes of a path in the order of the file. `decide` says what happens to requests that
/// pass the tests of a set, a bit for each, and no others. Of two routes with as many tests, the one
/// whose decision is `early` comes first.
///
/// # Errors
/// No routes decide the same; the text says why.
pub(super) fn variants<D: Clone + PartialEq>(
    tests: &[Test],
    decide: impl Fn(u32) -> D,
    early: impl Fn(&D) -> usize,
) -> Result<Vec<Variant<D>>, String> {
    if tests.len() > MOST_TESTS {
        return Err(format!("a path has more than {MOST_TESTS} conditions"));
    }

    // A route that another one decides equally for may still come before a third one.
    let ways = [false, true].into_iter().flat_map(|is_whole| {
        [Order::FirstIf, Order::LastTest].into_iter().map(move |order| (is_whole, order))
    });
    let place = |kept: &Kept<D>, order| match order {
        Order::FirstIf => early(&kept.variant.decision),
        Order::LastTest => tests.len() - last_of(kept.set),
    };
    let found =
        ways.map(|(is_whole, order)| in_order(tests, &decide, |kept| place(kept, order), is_whole));
    let mut right = found.filter(|kept| is_right(tests, kept, &decide));
    let kept = right.next().ok_or("two conditions ask for the same field")?;
    let kept = without_needless(tests, kept, &decide);
    Ok(kept.into_iter().map(|kept| kept.variant).collect())
}

/// The order of routes with as many tests. Of two tests of one field, both may hold.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// The first `if` decides, as if each one answers.
    FirstIf,
    /// The last one decides, as if each one sets a variable.
    LastTest,
}

/// The most routes of which needless ones are looked for.
const MOST_COMPARED: usize = 32;

/// Leaves out the routes without which each request gets the same decision.
fn without_needless<D: Clone + PartialEq>(
    tests: &[Test],
    mut all: Vec<Kept<D>>,
    decide: &impl Fn(u32) -> D,
) -> Vec<Kept<D>> {
    if all.len() > MOST_COMPARED {
        return all;
    }

    let mut at = 0;
    while at < all.len() {
        let mut fewer = all.clone();
        fewer.remove(at);
        if is_right(tests, &fewer, decide) {
            all = fewer;
        } else {
            at += 1;
        }
    }
    all
}

/// Returns the number of the last test of a set, or 0.
fn last_of(set: u32) -> usize {
    usize::try_from(u32::BITS - set.leading_zeros()).unwrap_or(0)
}

fn in_order<D: Clone + PartialEq>(
    tests: &[Test],
    decide: &impl Fn(u32) -> D,
    place: impl Fn(&Kept<D>) -> usize,
    is_whole: bool,
) -> Vec<Kept<D>> {
    let order = |kept: &Kept<D>| (kept.set.count_ones(), Reverse(place(kept)));
    let mut sets = possible_sets(tests);
    sets.sort_by_key(|set| set.count_ones());

    let mut all: Vec<Kept<D>> = Vec::new();
    for set in sets {
        let Some(joined) = joined(tests, set) else { continue };
        let decision = decide(set);
        let below = all.iter().filter(|other| other.set & set == other.set);
        let known = below.max_by_key(|other| (rank(&other.variant.tests), order(other)));
        if is_whole || known.is_none_or(|known| known.variant.decision != decision) {
            all.push(Kept { set, variant: Variant { tests: joined, decision } });
        }
    }

    all.sort_by_key(|kept| Reverse(order(kept)));
    all
}

/// Reports whether each request gets the route with its decision.
fn is_right<D: PartialEq>(tests: &[Test], all: &[Kept<D>], decide: &impl Fn(u32) -> D) -> bool {
    possible_sets(tests).into_iter().all(|set| {
        let fitting = all.iter().filter(|kept| kept.set & set == kept.set);
        // Of several equal ones, the last is taken: so the file is read from its end.
        let fitting: Vec<_> = fitting.collect();
        let chosen = fitting.into_iter().rev().max_by_key(|kept| rank(&kept.variant.tests));
        chosen.is_some_and(|kept| kept.variant.decision == decide(set))
    })
}

/// Returns the sets of tests that some request passes while it passes no other.
pub(super) fn possible_sets(tests: &[Test]) -> Vec<u32> {
    (0..1_u32 << tests.len()).filter(|set| is_possible(tests, *set)).collect()
}

fn is_possible(tests: &[Test], set: u32) -> bool {
    let passes = |at: usize| set >> at & 1 == 1;
    let fits = |is_right: &dyn Fn(&Test) -> Option<bool>| {
        tests.iter().enumerate().all(|(at, test)| is_right(test).is_none_or(|is| is == passes(at)))
    };

    let methods = tests.iter().filter_map(|test| match test {
        Test::Method(methods) => Some(methods.iter().map(String::as_str)),
        Test::Header(..) | Test::Query(..) | Test::WholeQuery(_) | Test::Certificate(_) => None,
    });
    // A method that no test names is as good as any other.
    let mut methods = methods.flatten().chain([""]);
    let has_method = methods.any(|method| {
        fits(&|test| match test {
            Test::Method(all) => Some(all.iter().any(|one| one == method)),
            Test::Header(..) | Test::Query(..) | Test::WholeQuery(_) | Test::Certificate(_) => None,
        })
    });

    // A field that has the one value that is asked for decides all tests of this field.
    let mut known = tests.iter().enumerate().filter(|(at, _)| passes(*at)).map(|(_, test)| test);
    has_method
        && known.all(|known| match known.values() {
            Some(Values::Equal(value)) => {
                fits(&|test| is_of_one_field(known, test).then(|| holds(test, value)).flatten())
            }
            Some(Values::Match(_)) => fits(&|test| implies(known, test).then_some(true)),
            None => true,
        })
}

/// Reports whether each value of a field that passes one test also passes another, as far as that is
/// clear.
fn implies(one: &Test, other: &Test) -> bool {
    if !is_of_one_field(one, other) {
        return false;
    }
    match one.values() {
        Some(Values::Equal(value)) => holds(other, value) == Some(true),
        Some(Values::Match(_)) => match (other, other.values()) {
            (Test::Certificate(_), Some(Values::Match(regex))) => regex == ANY_SUBJECT,
            (_, Some(Values::Match(regex))) => regex == ".+" && holds(one, "") == Some(false),
            (_, Some(Values::Equal(_)) | None) => false,
        },
        None => false,
    }
}

/// Reports whether a value of its field passes a test; `None` for a method.
fn holds(test: &Test, value: &str) -> Option<bool> {
    match test.values()? {
        Values::Equal(wanted) => Some(wanted == value),
        Values::Match(regex) => {
            let whole = compiled(&format!("^(?:{regex})$"), false).ok()?;
            Some(whole.is_match(value.as_bytes()))
        }
    }
}

/// Returns how specific tests are, as flowgate compares routes.
fn rank(tests: &[Test]) -> (bool, usize, usize) {
    let count = |is_meant: fn(&Test) -> bool| tests.iter().filter(|test| is_meant(test)).count();
    let has_method = count(|test| matches!(test, Test::Method(_))) > 0;
    let headers = count(|test| matches!(test, Test::Header(..) | Test::Certificate(_)));
    let query = count(|test| matches!(test, Test::Query(..) | Test::WholeQuery(_)));
    (has_method, headers, query)
}

/// Returns the tests of a set as one route has them, or `None` if no request passes all, or no match
/// has them.
fn joined(tests: &[Test], set: u32) -> Option<Vec<Test>> {
    let mut joined: Vec<Test> = Vec::new();
    for (_, test) in tests.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1) {
        match (test, joined.iter_mut().find(|other| is_of_one_field(other, test))) {
            (_, None) => joined.push(test.clone()),
            (Test::Method(methods), Some(Test::Method(known))) => {
                known.retain(|method| methods.contains(method));
                if known.is_empty() {
                    return None;
                }
            }
            (_, Some(known)) if implies(known, test) => {}
            (_, Some(known)) if implies(test, known) => *known = test.clone(),
            (_, Some(_)) => return None,
        }
    }
    Some(joined)
}

/// Reports whether a match has at most one of two tests.
fn is_of_one_field(one: &Test, other: &Test) -> bool {
    match (one, other) {
        (Test::Method(_), Test::Method(_))
        | (Test::WholeQuery(_), Test::WholeQuery(_))
        | (Test::Certificate(_), Test::Certificate(_)) => true,
        (Test::Header(one, _), Test::Header(other, _))
        | (Test::Query(one, _), Test::Query(other, _)) => one == other,
        (_, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const METHODS: [&str; 3] = ["GET", "POST", "PUT"];

    /// A request: a method, and the values of two header fields and a field of the query.
    #[derive(Clone, Copy, Debug)]
    struct Request {
        method: usize,
        headers: [&'static str; 2],
        query: &'static str,
    }

    const VALUES: [&str; 3] = ["", "x", "y"];

    fn passes(test: &Test, request: &Request) -> bool {
        match test {
            Test::Method(methods) => methods.iter().any(|method| method == METHODS[request.method]),
            Test::Header(name, _) => {
                holds(test, request.headers[usize::from(name == "b")]) == Some(true)
            }
            Test::Query(..) => holds(test, request.query) == Some(true),
            Test::WholeQuery(_) | Test::Certificate(_) => false,
        }
    }

    fn values() -> impl Strategy<Value = Values> {
        prop_oneof![
            2 => prop::sample::select(&VALUES[1..]).prop_map(|text| Values::Equal(text.into())),
            1 => Just(Values::Match(".+".into())),
        ]
    }

    fn test() -> impl Strategy<Value = Test> {
        prop_oneof![
            prop::collection::btree_set(0..METHODS.len(), 1..3).prop_map(|methods| Test::Method(
                methods.into_iter().map(|at| METHODS[at].to_owned()).collect()
            )),
            values().prop_map(|values| Test::Header("a".into(), values)),
            values().prop_map(|values| Test::Header("b".into(), values)),
            values().prop_map(|values| Test::Query("q".into(), values)),
        ]
    }

    fn all_requests() -> Vec<Request> {
        let mut all = Vec::new();
        for number in 0..81 {
            all.push(Request {
                method: number % 3,
                headers: [VALUES[number / 3 % 3], VALUES[number / 9 % 3]],
                query: VALUES[number / 27],
            });
        }
        all
    }

    proptest! {
        /// Any table of decisions becomes routes that decide so, or none.
        #[test]
        fn each_request_gets_the_route_with_its_decision(
            tests in prop::collection::vec(test(), 0..4),
            decisions in prop::collection::vec(0..3_usize, 16),
        ) {
            let mut different: Vec<Test> = Vec::new();
            for test in tests {
                if !different.contains(&test) {
                    different.push(test);
                }
            }
            let decide = |set: u32| decisions[usize::try_from(set).unwrap()];
            let Ok(found) = variants(&different, decide, |decision| *decision) else {
                // Two tests of one field cannot both be written.
                return Ok(());
            };
            for request in all_requests() {
                let set = different.iter().enumerate().filter(|(_, test)| passes(test, &request));
                let set = set.fold(0, |set, (at, _)| set | 1 << at);
                let fitting = found.iter().filter(|variant| variant.tests.iter().all(|test| passes(test, &request)));
                let all: Vec<_> = fitting.collect();
                let chosen = all.into_iter().rev().max_by_key(|variant| rank(&variant.tests));
                let chosen = chosen.map(|variant| variant.decision);
                prop_assert_eq!(chosen, Some(decide(set)), "{:?} {:?}", request, found);
            }
        }
    }

    #[test]
    fn a_path_without_conditions_is_one_route() {
        let expected = vec![Variant { tests: Vec::new(), decision: 7 }];
        assert_eq!(variants(&[], |_| 7, |_| 0), Ok(expected));
    }

    #[test]
    fn conditions_of_one_field_are_distinguished_or_rejected() {
        let of = |values| Test::Header("a".into(), values);
        let equal = |value: &str| of(Values::Equal(value.into()));
        let found = |tests: &[Test], decide: &dyn Fn(u32) -> usize| {
            let found = variants(tests, decide, |decision| *decision);
            found.map(|all| all.iter().map(|one| one.decision).collect::<Vec<_>>())
        };

        // No request has both values.
        let values = [equal("x"), equal("y")];
        let by_value = |set: u32| usize::try_from(set).unwrap();
        assert_eq!(found(&values, &by_value), Ok(vec![1, 2, 0]));

        // Of two expressions, the first decides, or the last, but not a third decision.
        let both = [of(Values::Match("x.*".into())), of(Values::Match(".*y".into()))];
        assert_eq!(
            found(&both, &|set| [3, 1, 2, 1][usize::try_from(set).unwrap()]),
            Ok(vec![1, 2, 3])
        );
        assert_eq!(
            found(&both, &|set| [3, 1, 2, 2][usize::try_from(set).unwrap()]),
            Ok(vec![2, 1, 3])
        );
        // The first one decides as a request without both, but comes before the second one.
        let first = [of(Values::Match("x.*".into())), of(Values::Match(".+".into()))];
        assert_eq!(
            found(&first, &|set| [1, 1, 2, 1][usize::try_from(set).unwrap()]),
            Ok(vec![1, 2, 1])
        );
        assert!(found(&both, &|set| [3, 1, 2, 0][usize::try_from(set).unwrap()]).is_err());
    }
}
