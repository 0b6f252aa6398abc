//! The order in which a request locks the gates that decide about it.
//!
//! A route's own gate comes first: only requests of that route lock it. Those of the budgets follow in
//! the order of their numbers, each once, so that requests never wait for each other in a circle.
//! `tests/models.rs` tries every order in which threads that lock so can run.

/// The gates of budgets in the order in which a request locks them.
#[derive(Debug)]
pub(super) struct LockOrder<G> {
    /// By number, each once.
    pub(super) gates: Vec<G>,
    /// Their places in `gates`, in the order in which they decide.
    pub(super) deciding: Vec<u8>,
}

impl<G> LockOrder<G> {
    /// Orders gates that decide in the order of `deciding`, of which some may be listed more than once.
    /// `number` tells them apart. Of more than 256, the others are left out.
    pub(super) fn of(deciding: Vec<G>, number: impl Fn(&G) -> u32) -> Self {
        let numbers: Vec<u32> = deciding.iter().map(&number).collect();
        let mut gates = deciding;
        gates.sort_by_key(&number);
        gates.dedup_by_key(|gate| number(gate));

        let mut order: Vec<u8> = Vec::with_capacity(gates.len());
        for of_one in numbers {
            let place = gates.iter().position(|gate| number(gate) == of_one);
            let place = place.and_then(|place| u8::try_from(place).ok());
            order.extend(place.filter(|place| !order.contains(place)));
        }
        Self { gates, deciding: order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gates_are_locked_by_number_and_decide_as_they_are_listed(
            listed in proptest::collection::vec(1..20_u32, 0..40),
        ) {
            let order = LockOrder::of(listed.clone(), |number| *number);
            prop_assert!(order.gates.is_sorted_by(|one, next| one < next), "each once");

            let mut each_once: Vec<u32> = Vec::new();
            for number in listed {
                if !each_once.contains(&number) {
                    each_once.push(number);
                }
            }
            let decide: Vec<u32> =
                order.deciding.iter().map(|place| order.gates[usize::from(*place)]).collect();
            prop_assert_eq!(decide, each_once);
        }
    }
}
