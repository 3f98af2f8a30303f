"""The site's search, in a browser: what new users ask finds the page that answers it."""

import functools
import json
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.ui.browser import browser

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.long]  # the site is one folder
ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def site():
    command = [sys.executable, "scripts/build_site.py"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return ROOT / "build" / "site"


@pytest.fixture
def served(site):
    handler = functools.partial(Quiet, directory=site)
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
        field = page.get_by_role("combobox", name="Search", include_hidden=True)
        await field.wait_for(state="attached")  # who listens to the keys is there
        await page.keyboard.press("Control+k")
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
    index = json.loads((site / "search.json").read_text())
    locations = {item["location"] for item in index["items"]}
    assert not [name for name in locations if name.startswith(("docs/adr/", "CHANGELOG"))]
    assert "docs/troubleshooting.html" in locations
