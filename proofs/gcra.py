"""The bucket (`algorithm: token_bucket`, `src/flow/limiter/token_bucket.rs`), for all integers.

Time and cost are in units of the interval: a cost `c` is `n·T`, and a bucket's size `b` is `burst·T`.

    now   the time
    TAT   the state: when the bucket is full again
    b     the bucket's size
    s     any instant, from which an interval is looked at
    A     the net charge since s: charges and excesses less what was given back, each at its instant
    D     the excesses since s: costs that were settled above their reserves
    d     the debt at s: TAT <= s + b + d

The invariant: `A <= max(TAT - s, 0)` and `TAT <= now + b + d + D`. It holds at the start and after each
step, so it always holds. From it follow the promises:

1. `A <= (now - s) + b + d + D` at any time.
2. `A <= (now - s) + b` after each admission: debts are paid before a request passes.

`--with NAME` puts a wrong formula in place of the right one: then a lemma fails.
"""

import sys

from z3 import And, Implies, Int, Not

from lib.prove import Proof, maximum, minimum


class Formula:
    """The right formulas. `tests/proofs.rs` has the same ones, and compares them with the code."""

    name = "right"

    def admits(self, tat, now, b, c):
        return And(c <= b, maximum(tat, now) - now + c <= b)

    def charge(self, tat, now, b, c):
        return maximum(tat, now) + c

    def excess(self, tat, now, b, e):
        return maximum(tat, now) + e

    def give_back(self, tat, now, b, g):
        return maximum(tat - g, 0)


class Clamped(Formula):
    """A debt is cut where the bucket is empty."""

    name = "clamped-debt"

    def excess(self, tat, now, b, e):
        return minimum(maximum(tat, now) + e, now + b)


class WithoutMax(Formula):
    """A time without requests is saved up."""

    name = "without-max"

    def admits(self, tat, now, b, c):
        return And(c <= b, tat - now + c <= b)

    def charge(self, tat, now, b, c):
        return tat + c


class Reset(Formula):
    """A give-back forgets what others were charged."""

    name = "reset-on-give-back"

    def give_back(self, tat, now, b, g):
        return now


WRONG = [Clamped(), WithoutMax(), Reset()]


def invariant(tat, now, b, s, a, d, old):
    return And(a <= maximum(tat - s, 0), tat <= now + b + old + d)


def prove(proof, formula):
    tat, now, b, s, a, d, old = (Int(name) for name in ("TAT", "now", "b", "s", "A", "D", "d"))
    c, t = Int("c"), Int("t")
    sane = [tat >= 0, b >= 0, s >= 0, s <= now, d >= 0, old >= 0]
    holds = invariant(tat, now, b, s, a, d, old)
    before = [*sane, holds, c >= 0]

    start = [tat >= 0, b >= 0, s >= 0, old >= 0, tat <= s + b + old]
    proof.lemma("start: the invariant holds at s", start, invariant(tat, s, b, s, 0, 0, old))
    proof.lemma("tick: time passes", [*before, t >= now], invariant(tat, t, b, s, a, d, old))

    admitted = formula.admits(tat, now, b, c)
    charged = formula.charge(tat, now, b, c)
    after = invariant(charged, now, b, s, a + c, d, old)
    proof.lemma("admit: a request is charged its cost or reserve", [*before, admitted], after)
    excess = invariant(formula.excess(tat, now, b, c), now, b, s, a + c, d + c, old)
    proof.lemma("settle up: an excess is charged", before, excess)
    given = invariant(formula.give_back(tat, now, b, c), now, b, s, a - c, d, old)
    proof.lemma("settle down: a part is given back", before, given)

    proof.lemma("promise 1: A <= (now - s) + b + d + D", [*sane, holds], a <= now - s + b + old + d)
    after = a + c <= now - s + b
    proof.lemma("promise 2: A <= (now - s) + b after an admission", [*before, admitted], after)

    # A rejected request would be admitted after exactly its `Retry-After`, and not before.
    excess = maximum(tat, now) - now + c - b
    later = formula.admits(tat, t, b, c)
    rejected = [*before, c <= b, excess > 0]
    exact = And(Implies(t >= now + excess, later), Implies(And(t >= now, t < now + excess), Not(later)))
    proof.lemma("retry: Retry-After is exact, with a debt too", rejected, exact)


def prove_edit(proof):
    """An edit from the size `b` to the size `n` keeps the share `m / b` that is missing.

    `m = k·b + r`; a whole bucket of debt stays a whole bucket, and a part is rounded up."""
    b, n, m, k, r, q = (Int(name) for name in ("b", "n", "m", "k", "r", "q"))
    parts = [b > 0, n >= 0, k >= 0, r >= 0, r < b, m == k * b + r]
    rounded_up = [q * b >= r * n, (q - 1) * b < r * n, q >= 0]
    kept = k * n + q
    proof.lemma("edit: a bucket without debt has none after", [*parts, *rounded_up, k == 0], q <= n)
    share = kept * b == (k * b) * n + q * b
    proof.lemma("edit: no debt is forgiven, no budget is made", [*parts, *rounded_up, share], kept * b >= m * n)


def trace(formula, b_value=10):
    """Returns a trace that breaks promise 2: three requests, an excess or a give-back between them."""
    now, steps, constraints = Int("now0"), [], []
    start, tat = now, Int("tat0")
    constraints += [now >= 0, now <= 100, tat >= 0, tat <= now + b_value]
    steps.append(lambda of, tat=tat, now=now: f"start: now {of(now)}, TAT {of(tat)}, b {b_value}")
    charged, given, excesses = 0, 0, 0
    for number in range(3):
        c, e, g, t = (Int(f"{name}{number}") for name in ("c", "e", "g", "t"))
        constraints += [c >= 1, c <= b_value, formula.admits(tat, now, b_value, c)]
        tat = formula.charge(tat, now, b_value, c)
        charged = charged + c
        steps.append(lambda of, c=c: f"admit {of(c)}")
        if number == 2:
            break
        # No more is given back than was charged.
        constraints += [e >= 0, e <= 50, g >= 0, g <= charged - given, t >= 0, t <= 20]
        tat = formula.excess(tat, now, b_value, e)
        tat = formula.give_back(tat, now, b_value, g) if formula.name == "reset-on-give-back" else tat
        if formula.name == "reset-on-give-back":
            constraints += [g > 0]
            given = given + g
            steps.append(lambda of, g=g: f"give back {of(g)}")
        else:
            excesses = excesses + e
            steps.append(lambda of, e=e: f"excess {of(e)}")
        now = now + t
        steps.append(lambda of, t=t: f"wait {of(t)}")
    net = charged + excesses - given
    constraints.append(net > now - start + b_value)
    steps.append(lambda of: f"net charge {of(net)} in {of(now - start)}, allowed {of(now - start + b_value)}")
    return steps, constraints


def main():
    chosen = [formula for formula in [Formula(), *WRONG] if formula.name in sys.argv[2:]]
    formula = chosen[0] if chosen else Formula()
    print("admit      max(TAT, now) - now + c <= b, then TAT = max(TAT, now) + c")
    print("settle     TAT = max(TAT, now) + e, or TAT = max(TAT - g, 0)")
    print(f"formula    {formula.name}")
    proof = Proof()
    prove(proof, formula)
    prove_edit(proof)
    if not chosen:
        for wrong in WRONG:
            proof.refuted(f"{wrong.name}: {wrong.__doc__}", trace(wrong))
    proof.end()


if __name__ == "__main__":
    main()
