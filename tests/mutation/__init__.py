"""Whether the tests bite: guards that are removed, mutants of the pure parts (ADR 51)."""
