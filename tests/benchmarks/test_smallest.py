"""Every bench is run to its end by CI, as small as it can be."""

import re
from pathlib import Path

from tests.benchmarks.smallest import ROOT, SMALLEST


def test_every_bench_of_the_makefile_is_run_by_ci_at_its_smallest():
    makefile = (ROOT / "Makefile").read_text()
    rules = re.split(r"^(?=[a-z-]+:)", makefile, flags=re.MULTILINE)
    of_benches = [rule for rule in rules if rule.startswith("bench-")]
    modules = set(re.findall(r"-m tests\.benchmarks\.(\w+)", "".join(of_benches)))
    assert modules - {"smallest"} == set(SMALLEST)
    assert "make bench-smallest" in Path(ROOT, ".ci", "run").read_text()
