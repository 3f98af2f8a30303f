"""The site: it is built without a warning, every link in it leads somewhere, nothing is from elsewhere."""

import functools
import json
import subprocess
import sys
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.ui.browser import browser

pytestmark = pytest.mark.xdist_group("site")  # which is one folder
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


# --- the search -----------------------------------------------------------------------------------

QUESTIONS = [
    [part.strip() for part in line.split("|")]
    for line in (Path(__file__).parent / "questions.txt").read_text().splitlines()
    if not line.startswith("#")
]
LINKS = """() => {
  const found = [];
  const walk = (root) => {
    for (const one of root.querySelectorAll("*")) {
      if (one.shadowRoot) walk(one.shadowRoot);
      if (one.tagName === "A" && root !== document) found.push(new URL(one.href).pathname.slice(1));
    }
  };
  walk(document);
  return found;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(site):
    handler = functools.partial(Quiet, directory=ROOT / "build" / "site")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
        server.shutdown()
        thread.join()


async def test_questions_of_new_users_find_their_page_among_the_first_three(served):
    """Nine of ten of them. An answer is there when it is other than that of the question before."""
    assert len(QUESTIONS) >= 20
    missed = {}
    async with browser() as chromium:
        page = await chromium.new_page()
        await page.goto(served)
        await page.keyboard.press("Control+k")
        field = page.get_by_role("combobox").or_(page.locator("input[aria-label=Search]")).first
        await field.wait_for()
        for question, *pages in QUESTIONS:
            await field.fill("")
            await wait_for_links(page, lambda links: not links)
            await field.fill(question)
            links = await wait_for_links(page, bool)
            if not any(link in pages for link in links[:3]):
                missed[question] = links[:3]
    assert len(missed) <= len(QUESTIONS) // 10, missed
    assert not any("adr" in link for links in missed.values() for link in links)


async def wait_for_links(page, are_there):
    """Return the answer's links, in their order, once they are as expected, or after a while."""
    links = []
    for _ in range(100):
        links = await page.evaluate(LINKS)
        if are_there(links):
            break
        await page.wait_for_timeout(20)
    return links


def test_decisions_are_not_searched(site):
    index = json.loads((ROOT / "build" / "site" / "search.json").read_text())
    locations = {item["location"] for item in index["items"]}
    assert not [name for name in locations if name.startswith(("docs/adr/", "CHANGELOG"))]
    assert "docs/troubleshooting.html" in locations
