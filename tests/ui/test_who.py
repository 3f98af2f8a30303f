"""The page asks who somebody is where the API wants to know, and keeps it to itself."""

from hashlib import sha256

import pytest
import pytest_asyncio
from playwright.async_api import expect

from services.api.access import guard
from services.api.access.guard import Access
from services.api.access.tokens import TokensFile
from shared.runtime import watched
from tests.ui.clusters import Cluster, served

pytestmark = pytest.mark.asyncio(loop_scope="session")
READ = f"ada read {sha256(b'a-token').hexdigest()}\n"
OTHER = f"bo read {sha256(b'other').hexdigest()}\n"


@pytest.fixture
def tokens(tmp_path, monkeypatch):
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(guard, "AGAIN_SECONDS", 0.0)
    path = tmp_path / "tokens"
    path.write_text(READ + OTHER)
    return path


@pytest_asyncio.fixture(loop_scope="session")
async def page(tab, tokens):
    """Yield a page of an API that asks; it is not signed in."""
    cluster = Cluster(nodes=5, pods=20, applications=6)
    cluster.tell_all()
    async with served(cluster.machine, access=Access([TokensFile(tokens)])) as url:
        tab.asked, tab.here = [], url

        def note(request):
            tab.asked.append(request.url)

        tab.on("request", note)
        await tab.goto(f"{url}/#/nodes")
        yield tab
        tab.remove_listener("request", note)


async def sign_in(page, token="a-token"):
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Go on").click()


async def test_a_page_that_nobody_is_signed_in_at_asks_and_then_shows_what_was_wanted(page):
    await expect(page.locator("#status")).to_have_text("not signed in")
    await expect(page.get_by_role("alert").first).to_contain_text("the role read")
    await expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    await sign_in(page)
    await expect(page.locator("#status")).to_have_text("live")
    await expect(page.locator("h1")).to_have_text("Nodes")
    await page.goto(f"{page.here}/#/applications/train-4")  # which asks for more than the stream
    await expect(page.locator("h1")).to_contain_text("train-4")
    await expect(page.locator("main")).not_to_contain_text("needs a token")
    assert not [url for url in page.asked if "a-token" in url]
    assert await page.context.cookies() == []
    await page.reload()
    await expect(page.locator("#status")).to_have_text("live")


async def test_a_wrong_token_is_said_to_be_wrong_and_another_one_may_be_given(page):
    await sign_in(page, "wrong")
    await expect(page.locator(".who [role=alert]")).to_contain_text("unknown token")
    await sign_in(page)
    await expect(page.locator("#status")).to_have_text("live")


async def test_who_signs_out_is_asked_again(page):
    await sign_in(page)
    await expect(page.locator("#status")).to_have_text("live")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator("#status")).to_have_text("not signed in")
    assert await page.evaluate("JSON.stringify([sessionStorage, localStorage])") == "[{},{}]"


async def test_a_token_that_is_taken_back_shows_nothing_more(page, tokens):
    await sign_in(page)
    await expect(page.locator("#status")).to_have_text("live")
    tokens.write_text(OTHER)
    await expect(page.locator("#status")).to_have_text("not signed in")
    await expect(page.locator("h1")).to_have_text("Who are you?")
    await sign_in(page, "other")
    await expect(page.locator("h1")).to_have_text("Nodes")
