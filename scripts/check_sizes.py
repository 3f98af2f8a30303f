"""The house sizes: functions of 50 lines at most, and no module named misc.

A module has no such limit: it ends where its subject ends.
"""

import ast
import sys
from pathlib import Path

MAX_FUNCTION_LINES = 50
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "misc"}


def main() -> int:
    """Print what is too large; return how much is."""
    root = Path(__file__).parent.parent
    found: list[str] = []
    for folder in ("services", "shared", "tools", "tests", "scripts"):
        for path in sorted((root / folder).rglob("*.py")):
            found += _check(path, path.relative_to(root))
    for line in found:
        print(line)
    return 1 if found else 0


def _check(path: Path, name: Path) -> list[str]:
    found: list[str] = []
    if path.stem in FORBIDDEN_NAMES:
        found.append(f"{name}: a module's name says what it is for")
    if name.parts[0] == "tests":
        return found
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(f"{name}:{node.lineno}: {node.name} has {length} lines")
    return found


if __name__ == "__main__":
    sys.exit(main())
