"""Lemmas that z3 decides for all integers, and traces that refute a wrong formula."""

import sys

import z3


class Proof:
    """The lemmas of one algorithm. `end` exits with 0 if every lemma holds, else with 1."""

    def __init__(self):
        self.failures = 0

    def lemma(self, name, assumptions, conclusion):
        """States that `conclusion` follows from `assumptions`, whatever the integers are."""
        solver = z3.Solver()
        solver.set("timeout", 60_000)
        solver.add(*assumptions)
        solver.add(z3.Not(conclusion))
        result = solver.check()
        if result == z3.unsat:
            print(f"holds      {name}")
            return
        self.failures += 1
        if result == z3.sat:
            print(f"FAILS      {name}: {shown(solver.model())}")
        else:
            print(f"UNKNOWN    {name}: {solver.reason_unknown()}")

    def refuted(self, name, trace):
        """States that a wrong formula has a `trace` of `(steps, constraints)` that breaks a promise."""
        steps, constraints = trace
        solver = z3.Solver()
        solver.set("timeout", 60_000)
        solver.add(*constraints)
        if solver.check() != z3.sat:
            self.failures += 1
            print(f"NOT REFUTED {name}")
            return
        model = solver.model()
        words = "; ".join(step(lambda term: model.eval(term, model_completion=True)) for step in steps)
        print(f"refuted    {name}: {words}")

    def end(self):
        print(f"{self.failures} failed")
        sys.exit(1 if self.failures else 0)


def shown(model):
    return ", ".join(sorted(f"{name} = {model[name]}" for name in model))


def maximum(a, b):
    return z3.If(a > b, a, b)


def minimum(a, b):
    return z3.If(a < b, a, b)
