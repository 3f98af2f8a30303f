"""The site: it is built without a warning, every link in it leads somewhere, nothing is from elsewhere."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.long]  # the site is one folder
ROOT = Path(__file__).parents[3]
_LOADED = {"script": "src", "link": "href", "img": "src"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.names, self.loaded = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.names.update(name for name in (found.get("id"), found.get("name")) if name)
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in _LOADED and found.get(_LOADED[tag]) and found.get("rel") != "canonical":
            self.loaded.append(found[_LOADED[tag]])


@pytest.fixture(scope="module")
def site():
    command = [sys.executable, "scripts/build_site.py"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    folder = ROOT / "build" / "site"
    return {path: Page(path.read_text()) for path in folder.rglob("*.html")}


def test_every_link_leads_to_a_page_and_to_a_heading_of_it(site):
    wrong = []
    for path, page in site.items():
        if path.name == "404.html":  # its links are from the root of wherever it is served
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            name = unquote(parts.fragment)
            is_wrong = not target.exists() or (name and name not in site[target].names)
            wrong += [f"{path.name}: {link}"] if is_wrong else []
    assert wrong == []


def test_nothing_is_loaded_from_another_host(site):
    assert len(site) > 20
    assert [link for page in site.values() for link in page.loaded if urlsplit(link).netloc] == []


def test_pictures_and_examples_are_there(site):
    folder = ROOT / "build" / "site"
    for name in ("docs/pictures/gang.svg", "docs/pictures/queues.svg", "docs/asyncapi.yaml"):
        assert (folder / name).exists()
