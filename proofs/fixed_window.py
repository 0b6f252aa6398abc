"""The fixed window (`algorithm: fixed_window`, `src/flow/limiter/fixed_window.rs`), for all integers.

    N     the limit
    used  the state: what this window holds
    A     the net cost of the requests of this window: their charges, less what of them was given back,
          and the excesses that were settled in it, also of requests of a former window
    D     the excesses that were settled in this window

The invariant: `A <= used` and `0 <= used <= N + D`. From it follow the promises:

1. `A <= N + D` at any time.
2. `A <= N` after each admission: an excess is paid before a request passes, or the window ends.

`--with NAME` puts a wrong formula in place of the right one: then a lemma fails.
"""

import sys

from z3 import And, If, Int

from lib.prove import Proof, maximum, minimum


class Formula:
    """The right formulas."""

    name = "right"

    def admits(self, used, n, c):
        return used + c <= n

    def excess(self, used, n, e):
        return used + e

    def give_back(self, used, g, is_of_window):
        return If(is_of_window, maximum(used - g, 0), used)


class Clamped(Formula):
    """An excess is cut at the limit."""

    name = "clamped-excess"

    def excess(self, used, n, e):
        return minimum(used + e, n)


class OtherWindow(Formula):
    """What a request of a former window gives back leaves this window."""

    name = "other-window"

    def give_back(self, used, g, is_of_window):
        return maximum(used - g, 0)


WRONG = [Clamped(), OtherWindow()]


def invariant(used, n, a, d):
    return And(a <= used, used >= 0, used <= n + d)


def prove(proof, formula):
    used, n, a, d, c, m = (Int(name) for name in ("used", "N", "A", "D", "c", "M"))
    is_of_window = Int("of_window") == 1
    before = [n >= 0, d >= 0, c >= 0, invariant(used, n, a, d)]
    proof.lemma("start, and the end of a window", [n >= 0], invariant(0, n, 0, 0))
    admitted = formula.admits(used, n, c)
    proof.lemma("admit", [*before, admitted], invariant(used + c, n, a + c, d))
    proof.lemma("settle up", before, invariant(formula.excess(used, n, c), n, a + c, d + c))
    net = If(is_of_window, a - c, a)
    given = invariant(formula.give_back(used, c, is_of_window), n, net, d)
    proof.lemma("settle down", before, given)
    # A limit that is lower than what is used counts as an excess.
    lowered = invariant(used, m, a, d + maximum(n - m, 0))
    proof.lemma("edit: another limit keeps what is used", [*before, m >= 0], lowered)
    proof.lemma("promise 1: A <= N + D", before, a <= n + d)
    proof.lemma("promise 2: A <= N after an admission", [*before, admitted], a + c <= n)


def trace(formula, n=10):
    """Returns a window that breaks promise 2: three requests, an excess and a give-back between them."""
    is_of_window = formula.name == "clamped-excess"
    whose = "this" if is_of_window else "a former"
    used, net, charged, constraints = 0, 0, 0, []
    steps = [lambda of: f"start: N {n}"]
    for number in range(3):
        c, e, g = (Int(f"{name}{number}") for name in ("c", "e", "g"))
        constraints += [c >= 1, c <= n, formula.admits(used, n, c)]
        used, net, charged = used + c, net + c, charged + c
        steps.append(lambda of, c=c: f"admit {of(c)}")
        if number == 2:
            break
        # A request of this window gives back no more than it was charged.
        constraints += [e >= 0, e <= 50, g >= 0, g <= (charged if is_of_window else n)]
        used, net = formula.excess(used, n, e), net + e
        used = formula.give_back(used, g, is_of_window)
        if is_of_window:
            net, charged = net - g, charged - g
        steps.append(lambda of, e=e, g=g: f"excess {of(e)}; {whose} window's request gives back {of(g)}")
    constraints.append(net > n)
    steps.append(lambda of, net=net: f"this window has {of(net)}, allowed {n}")
    return steps, constraints


def main():
    chosen = [formula for formula in [Formula(), *WRONG] if formula.name in sys.argv[2:]]
    formula = chosen[0] if chosen else Formula()
    print("admit      used + c <= N, then used = used + c")
    print("settle     used = used + e, or used = max(used - g, 0) if the request is of this window")
    print(f"formula    {formula.name}")
    proof = Proof()
    prove(proof, formula)
    if not chosen:
        for wrong in WRONG:
            proof.refuted(f"{wrong.name}: {wrong.__doc__}", trace(wrong))
    proof.end()


if __name__ == "__main__":
    main()
