"""Fixtures of the page's tests: one Chromium, one tab and one event loop for all of them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.patience import PATIENCE_SECONDS
from tests.ui import browser as chromium

expect.set_options(timeout=PATIENCE_SECONDS * 1000)
SIZE = {"width": 1280, "height": 800}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that need a browser on one worker, so that there is one browser."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium.browser() as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def only_tab(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport=SIZE)
    yield await context.new_page()
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(only_tab: Page) -> AsyncIterator[Page]:
    """Yield the tab that tests have one after another: one of its own takes a second of a processor.

    It is left as it was, and nothing stored: whoever listens to it stops by itself.
    """
    yield only_tab
    await only_tab.unroute_all()
    await only_tab.evaluate(
        "location.protocol === 'http:' && (localStorage.clear(), sessionStorage.clear())"
    )
    await only_tab.goto("about:blank")
    await only_tab.context.clear_cookies()
    await only_tab.set_viewport_size(SIZE)
    await only_tab.emulate_media(color_scheme="light")
