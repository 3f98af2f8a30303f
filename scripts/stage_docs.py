"""Lays the pages out for the site, as they lie in the repository, so that their links hold.

A link to what is no page of the site, a folder of the code say, becomes plain text: the site stands
by itself. Every page is in the navigation of mkdocs.yml, or is a decision.
"""

import re
import shutil
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "build" / "site-pages"
PAGES = (
    "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md",
    "deploy/README.md", "tests/conformance/README.md",
)  # fmt: skip
ASIDE = ("docs/asyncapi.yaml",)  # linked, and no page
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def main() -> int:
    """Write the pages; return 1 when one is not in the navigation, or is not there."""
    docs = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    pictures = [
        path.relative_to(ROOT).as_posix()
        for kind in ("svg", "png", "jpg")
        for path in (ROOT / "docs").rglob(f"*.{kind}")
    ]
    examples = [path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy/ci").rglob("*.y*ml")]
    pages = [*PAGES, *docs]
    shutil.rmtree(TARGET, ignore_errors=True)
    there_are = {*pages, *ASIDE, *pictures, *examples}
    for name in sorted(there_are):
        path = TARGET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in pages:
            path.write_text(_staged((ROOT / name).read_text(), name, there_are))
        else:
            shutil.copy(ROOT / name, path)
    return _check_navigation({page for page in docs if not page.startswith("docs/adr/")})


def _staged(text: str, name: str, there_are: set[str]) -> str:
    folder = (ROOT / name).parent

    def held(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        inside = target.is_relative_to(ROOT)
        return link[0] if inside and target.relative_to(ROOT).as_posix() in there_are else link[1]

    return _LINK.sub(held, text)


def _check_navigation(pages: set[str]) -> int:
    named = set(
        re.findall(
            r"[\w/-]+\.md", yaml.dump(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
        )
    )
    wrong = [f"mkdocs.yml: {page} is not in the navigation" for page in sorted(pages - named)]
    wrong += [
        f"mkdocs.yml: there is no {page}" for page in sorted(named) if not (ROOT / page).exists()
    ]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
