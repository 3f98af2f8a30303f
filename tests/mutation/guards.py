"""``make guards``: every guard of the table is removed once, and its tests must fail.

With words, only the guards whose sentence has one of them: ``make guards ARGS='epoch quota'``.
First all of the tests run on the tree as it is: they have to pass.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.mutation.trials import ALL_LIMIT_S, ROOT, Outcome, Trial, Verdict, fix_hashes, outcomes

TABLE = Path(__file__).with_name("guards.yaml")
LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Guard:
    """A rule that holds because of ``text``, and the tests that fail ``without`` it."""

    guard: str
    file: str
    text: str
    without: str
    tests: tuple[str, ...]

    def occurrences(self) -> int:
        """Return how often the text occurs in its file; where it can be removed, once."""
        return (ROOT / self.file).read_text(encoding="utf-8").count(self.text)

    def trial(self) -> Trial:
        """Return the trial that removes it."""
        source = (ROOT / self.file).read_text(encoding="utf-8")
        return Trial(
            self.guard, self.file, source.replace(self.text, self.without), self.tests, LIMIT_S
        )


def guards() -> list[Guard]:
    """Return the table."""
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Guard(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def main(words: Sequence[str]) -> int:
    """Remove the guards one by one; return 1 if the tests do not notice one."""
    table = [guard for guard in guards() if not words or any(word in guard.guard for word in words)]
    tests = tuple(dict.fromkeys(test for guard in table for test in guard.tests))
    trials = [guard.trial() for guard in table]
    as_it_is = Trial("nothing", table[0].file, None, tests, ALL_LIMIT_S)
    (before,) = outcomes([as_it_is], at_once=1)
    if before.verdict is not Verdict.UNNOTICED:
        print(before.said)
        print(f"the tests of the guards do not pass on the tree as it is: {before.verdict.value}")
        return 1
    missed = [found for found in map(_told, outcomes(trials)) if found]
    print(f"{len(table) - len(missed)} of {len(table)} guards are noticed when they are missing")
    for sentence in missed:
        print(sentence)
    return 1 if missed else 0


def _told(outcome: Outcome) -> str:
    """Print what came of a removal; return what is wrong with it, "" where a test failed."""
    name, verdict = outcome.trial.name, outcome.verdict
    print(f"{verdict.value:9} {outcome.seconds:5.1f} s  {name}", flush=True)
    if verdict is Verdict.NOTICED:
        return ""
    if verdict is Verdict.BROKEN:
        return f"{name}: without it {outcome.trial.path} does not even load\n{outcome.said}"
    return f"{name}: nobody notices that it is gone ({', '.join(outcome.trial.tests)})"


if __name__ == "__main__":
    fix_hashes()
    sys.exit(main(sys.argv[1:]))
