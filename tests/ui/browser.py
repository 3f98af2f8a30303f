"""A Chromium for the tests of the page: the system's, or the one that MUSTER_CHROMIUM names.

It is had as the broker is: what is there, else installed by the system's package manager as root
(scripts/ensure_browser.sh, which `make test` calls), else a failure that says what to install.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = ("--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb")


class BrowserMissingError(RuntimeError):
    """There is no Chromium; the message says what to install."""


def chromium() -> str:
    """Return the path of a Chromium. Raises BrowserMissingError."""
    named = os.environ.get("MUSTER_CHROMIUM", "")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise BrowserMissingError(
            (f"MUSTER_CHROMIUM={named} is no program" if named else "no Chromium is installed")
            + ": install the package chromium (as root: apt-get install chromium), or set "
            "MUSTER_CHROMIUM to one"
        )
    return found


@asynccontextmanager
async def browser(*flags: str) -> AsyncIterator[Browser]:
    """Yield a headless Chromium; as root it runs without its sandbox, which root may not have."""
    as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    async with async_playwright() as driver:
        found = await driver.chromium.launch(
            executable_path=chromium(), args=[*FLAGS, *as_root, *flags]
        )
        try:
            yield found
        finally:
            await found.close()
