use super::*;
use crate::flow::{
    Algorithm, Change, Instant,
    limiter::{concurrency, token_bucket},
    timeline::{Timeline, check, keyed, rate},
};

fn bucket(burst: u64) -> Algorithm {
    Algorithm::TokenBucket(token_bucket::Config { rate: rate(10, 1000), burst })
}

#[test]
fn each_client_has_its_own_state() {
    check(
        &keyed(bucket(1), 10),
        "
        0 key=a pass
        0 key=b pass
        0 key=a block rate 100
        0       pass
        0       block rate 100
        0 key=0 block key
        ",
    );
}

#[test]
fn an_evicted_client_keeps_its_usage() {
    check(
        &keyed(bucket(2), 2),
        "
        0    key=a x2 pass
        0    key=b    pass
        99   key=c    pass
        99   key=a    block rate 1
        99   key=b    pass
        99   key=b    block rate 1
        99   key=a    block rate 1
        100  key=a    pass
        1000 key=a x2 pass
        1100 key=d    pass
        1101 key=a    pass
        1101 key=a    block rate 99
        ",
    );
}

#[test]
fn a_new_client_gets_all_that_it_would_have_alone() {
    let day = Timeline::new(&keyed(bucket(2), 1)).check(
        "
        0   key=a x2 pass
        0   key=b x2 pass
        0   key=c x2 pass
        0   key=b    block rate 100
        0   key=a    block rate 100
        150 key=a    pass
        150 key=a    block rate 50
        200 key=b x2 pass
        ",
    );
    let churn = day.gate.observe(Instant::EPOCH).rules[0].keys.expect("keys").churn;
    // Rejected, `b` and `a` took no place.
    assert_eq!(churn, Churn { evicted: 4, restored: 1, overflowed: 0 });
}

#[test]
fn what_is_held_for_want_of_room_is_given_back_there() {
    check(
        &keyed(Algorithm::Concurrency(concurrency::Config { limit: 2 }), 1),
        "
        0 key=a    pass
        0 key=b    pass
        1 done     1
        1 key=b    pass
        1 key=b    block concurrency 2
        2 done     1
        2 done     0
        2 key=b x2 pass
        2 key=b    block concurrency 2
        ",
    );
}

#[test]
fn an_edit_converts_every_client() {
    Timeline::new(&keyed(bucket(2), 10))
        .check("0 key=a x2 pass")
        .check("0 key=b    pass")
        .edit(&keyed(bucket(4), 5), &[Change::Converted])
        .check("0 key=a block rate 100")
        .check("0 key=b x2 pass")
        .check("0 key=b block rate 100");
}

fn key(n: u32) -> u128 {
    u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

/// States that are an amount which is used until it is taken back.
#[derive(Default)]
struct Amounts {
    /// From here on they are held.
    held: u32,
}

impl StatePolicy<u32> for Amounts {
    fn is_held(&self, state: &u32) -> bool {
        self.held > 0 && *state >= self.held
    }

    fn is_fresh(&self, state: &u32) -> bool {
        *state == 0
    }

    fn scale(&self) -> Scale {
        Scale::Counts(1)
    }

    fn past_usage(&self, state: &u32) -> PastUsage {
        PastUsage::counted(1, [u64::from(*state), 0])
    }

    fn renew(&self, state: &mut u32) {
        *state = 0;
    }

    fn absorb(&self, state: &mut u32, usage: PastUsage) {
        *state = (*state).max(u32::try_from(usage.counts(1)[0]).expect("small"));
    }
}

impl Table<u32> {
    fn enter(&mut self, n: u32, policy: &Amounts) -> Lookup {
        self.prepare(key(n), policy, None);
        self.find(key(n), true, policy)
    }

    fn set(&mut self, n: u32, amount: u32, policy: &Amounts) -> KeySlot {
        let lookup = self.enter(n, policy);
        let key_slot = self.occupy(lookup, policy);
        *self.get_mut(key_slot) = amount;
        key_slot
    }

    fn finish(&mut self, policy: &Amounts) -> Vec<u32> {
        let conversion = Conversion { state: &|_| {}, usage: &|usage| usage };
        let mut live = Vec::new();
        while self.catch_up(policy, &conversion) {
            live.push(self.keys().live);
        }
        live.push(self.keys().live);
        live
    }
}

#[test]
fn a_full_table_stays_as_large_as_it_is() {
    let mut table = Table::new(0_u32, 2_000);
    let policy = Amounts::default();
    for n in 1..=100_000 {
        table.set(n, 1, &policy);
    }
    let keys = table.keys();
    assert_eq!((keys.live, keys.max), (2_000, 2_000));
    assert_eq!((keys.churn.evicted, keys.churn.overflowed), (98_000, 0));
    assert!(table.overflow.is_empty());
}

#[test]
fn of_a_few_the_one_with_the_least_to_lose_goes() {
    let mut table = Table::new(0_u32, 100);
    let policy = Amounts::default();
    // One of each eight has used little.
    (0..96).for_each(|n| {
        table.set(n, if n % 8 == 5 { 1 } else { 9 }, &policy);
    });
    (96..100).for_each(|n| {
        table.set(n, 9, &policy);
    });
    for n in 200..212 {
        assert_eq!(table.set(n, 9, &policy), KeySlot::Own((n - 200) * 8 + 5));
    }
    let back = table.enter(5, &policy);
    assert_eq!(*table.get(back), 1);
}

#[test]
fn held_states_stay_and_further_clients_share() {
    let mut table = Table::new(0_u32, 100);
    let policy = Amounts { held: 5 };
    (0..99).for_each(|n| {
        table.set(n, 5, &policy);
    });
    table.set(99, 4, &policy);
    let mut shared = 0;
    let key_slot = loop {
        shared += 1;
        match table.set(99 + shared, 1, &policy) {
            KeySlot::Overflow(_) => {}
            key_slot @ (KeySlot::Own(_) | KeySlot::Shared) => break key_slot,
        }
    };
    assert_eq!(key_slot, KeySlot::Own(99));
    assert!(shared - 1 <= 100 / SEARCH, "the hand has gone round");
    assert_eq!(table.keys().churn.overflowed, u64::from(shared - 1));
}

#[test]
fn clients_over_a_lowered_bound_leave_a_few_at_a_time_and_are_remembered() {
    let mut table = Table::new(0_u32, 100);
    let policy = Amounts { held: 50 };
    for n in 1..=100 {
        table.set(n, if n == 20 { 50 } else { 7 }, &policy);
    }
    table.retune(&Table::new(0, 10), |_| {});
    // Four times 32 are converted first; the 20th is in flight.
    assert_eq!(table.finish(&policy), [100, 100, 100, 100, 68, 36, 20]);
    let back = table.enter(100, &policy);
    assert_eq!(*table.get(back), 7);
    table.set(20, 0, &policy);
    table.retune(&Table::new(0, 10), |_| {});
    assert_eq!(table.finish(&policy).last(), Some(&10));
}

#[test]
fn the_hand_finds_the_one_fresh_state() {
    let mut table = Table::new(0_u32, 2_000);
    let policy = Amounts { held: 1 };
    for n in 1..=2_000 {
        table.set(n, u32::from(n != 1_234), &policy);
    }
    let rejected = (2_001..9_999).find(|&n| {
        let lookup = table.enter(n, &policy);
        table.on_reject(lookup);
        matches!(lookup, Lookup::New { .. })
    });
    assert!(rejected.is_some_and(|n| n - 2_001 <= 2_000 / SEARCH));
}
