"""The house sizes: modules of 400 lines at most, functions of 50, and no module named misc."""

import ast
import sys
from pathlib import Path

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 50
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "misc"}


def main() -> int:
    """Print what is too large; return how much is."""
    root = Path(__file__).parent.parent
    found: list[str] = []
    for folder in ("services", "shared", "tests", "scripts"):
        for path in sorted((root / folder).rglob("*.py")):
            found += _check(path, path.relative_to(root))
    for line in found:
        print(line)
    return 1 if found else 0


def _check(path: Path, name: Path) -> list[str]:
    text = path.read_text()
    found: list[str] = []
    lines = text.count("\n")
    if lines > MAX_MODULE_LINES:
        found.append(f"{name}: {lines} lines, at most {MAX_MODULE_LINES}: split by subject")
    if path.stem in FORBIDDEN_NAMES:
        found.append(f"{name}: a module's name says what it is for")
    if name.parts[0] == "tests":
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(f"{name}:{node.lineno}: {node.name} has {length} lines")
    return found


if __name__ == "__main__":
    sys.exit(main())
