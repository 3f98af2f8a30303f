"""The page of a replay in a browser: both themes, wide and narrow, from a file and with no network."""

import pytest
import pytest_asyncio

from tests.unit.cli.test_replay_page import EVICTING, PICTURES, replayed
from tools.replay.page.page import page_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
TITLES = ("Utilisation, %", "Jobs waiting", "Wait by size in GPUs", "Wait by queue",
          "Fragmentation, %", "Slowdown: how many jobs are at most so slow, %", "Evictions so far",
          "The widest gang")  # fmt: skip
# What is amiss with the words of pictures: any that stands on another one, or beyond the page.
AMISS = """() => [...document.querySelectorAll('.picture')].flatMap(picture => {
  const words = [...picture.querySelectorAll('text')].map(
    found => ({text: found.textContent, box: found.getBoundingClientRect()})
  ).filter(({box}) => box.width);
  const beyond = words.filter(({box}) => box.left < 0 || box.right > innerWidth || box.height < 10);
  const over = words.flatMap((a, at) => words.slice(at + 1).filter(b =>
    a.box.left < b.box.right && b.box.left < a.box.right &&
    a.box.top < b.box.bottom && b.box.top < a.box.bottom).map(b => ({text: `${a.text}/${b.text}`})));
  return [...beyond, ...over].map(({text}) => text);
})"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return the page of two setups, as a file."""
    made = tmp_path_factory.mktemp("replay") / "page.html"
    setups = [replayed("one", seeds=2), replayed("two", seeds=2, queues=EVICTING)]
    made.write_bytes(page_of(setups, 30))
    return made


@pytest_asyncio.fixture(loop_scope="session")
async def opened(tab, file):
    """Yield a function that opens the page; complaints and requests fail the test."""
    said: list[str] = []
    listeners = {
        "pageerror": lambda error: said.append(str(error)),
        "console": lambda message: said.append(message.text),
        "request": lambda request: said.append(request.url),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)

    async def open_page(width=1200, theme="light"):
        await tab.set_viewport_size({"width": width, "height": 900})
        await tab.emulate_media(color_scheme=theme)
        await tab.goto(file.as_uri())
        return tab

    yield open_page
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert set(said) == {file.as_uri()}


@pytest.mark.parametrize("width", [1200, 768, 400, 320])
async def test_nothing_stands_beyond_the_page_nor_on_something_else(opened, width):
    page = await opened(width)
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    assert await page.evaluate(AMISS) == []
    boxes = await page.evaluate(
        "[...document.querySelectorAll('polyline')].map(found => found.getBoundingClientRect().width)"
    )
    assert len(boxes) == 10
    assert min(boxes) > width / 6


async def test_each_picture_has_a_name_and_a_sentence_for_who_does_not_see_it(opened):
    page = await opened()
    for title in TITLES:
        await page.get_by_role("img", name=title, exact=True).wait_for()
    said = await page.locator("#evictions-said").text_content()
    assert said == "one: from 0.0 to 0.0, at last 0.0; two: from 1.0 to 1.0, at last 1.0"


async def test_the_tables_are_opened_by_the_keyboard(opened):
    page = await opened()
    for _ in range(len(PICTURES) * 3):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.matches('details:not([open]) summary')"):
            await page.keyboard.press("Enter")
    assert await page.locator("details[open] table:visible").count() == len(PICTURES)


async def test_both_themes_are_drawn_in_their_colours(opened):
    looks = {}
    for theme in ("light", "dark"):
        page = await opened(theme=theme)
        looks[theme] = await page.evaluate(
            "['body', '.line.s0', '.line.s1', '.picture text'].map(found => {"
            "  const style = getComputedStyle(document.querySelector(found));"
            "  return found === 'body' ? style.backgroundColor"
            "    : found === '.picture text' ? style.fill : style.stroke })"
        )
    assert len(set(looks["light"] + looks["dark"])) == 8
