"""Runs fair-share tables: ``python -m tests.conformance.fairshare FILE.jsonl``; 0 when all hold.

A row has a total, queues with deserved, weight, limit, request and priority, and what each gets.
"""

import argparse
import json
import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # also when it is run by its path

from services.core.scheduler.constraints.fair_share import Claim, divide
from services.core.scheduler.statement.trial import UNLIMITED
from tests.conformance.kai import read_rows


def amount(value):
    """Return an exact amount; null and "unlimited" are no limit."""
    if value in (None, "unlimited", -1):
        return UNLIMITED
    exact = Fraction(str(value))
    return int(exact) if exact.denominator == 1 else exact


def shares(row: dict) -> dict[str, dict[str, int]]:
    """Return what every queue of a row gets, by resource."""
    found: dict[str, dict[str, int]] = {name: {} for name in row["queues"]}
    for resource, total in row["total"].items():
        claims = {}
        for number, (name, queue) in enumerate(row["queues"].items()):
            spec = queue["resources"].get(resource)
            if spec is None:
                continue
            claims[name] = Claim(
                number=number,
                priority=queue.get("priority", 0),
                quota=amount(spec["deserved"]),
                limit=amount(spec["max_allowed"]),
                weight=Fraction(str(spec["over_quota_weight"])),
                requested=amount(spec["request"]),
            )
        divide(amount(total), list(claims.values()))
        for name, claim in claims.items():
            found[name][resource] = claim.share
    return found


def differences(row: dict) -> list[str]:
    """Return a sentence for each share that is not as expected."""
    found = shares(row)
    return [
        f"queue {name} {resource}: expected {wanted:g}, found {found[name].get(resource)}"
        for name, expected in row["expected_fair_share"].items()
        for resource, wanted in expected.items()
        if float(found[name].get(resource, -1)) != float(wanted)
    ]


def main() -> int:
    """Run a file and print a line a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args()
    results = []
    for row in read_rows(options.file):
        results.append({"id": row["id"], "title": row["title"], "wrong": differences(row)})
    if options.output == "json":
        print(json.dumps(results, indent=2))
    else:
        for result in results:
            print("ok   " if not result["wrong"] else "WRONG", result["id"], result["title"])
            for sentence in result["wrong"]:
                print("     ", sentence)
        print(f"{sum(not r['wrong'] for r in results)} of {len(results)} hold")
    return 0 if all(not result["wrong"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
