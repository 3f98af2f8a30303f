"""Accessibility of the page: names, labels, headings, landmarks, contrast, in every view and width.

The rules of VIOLATIONS are quick, and also judge the dialogs (test_actions.py). axe-core itself, in
the version that axe-playwright-python brings, judges every view, scheme and width in a long test.
"""

from importlib.resources import files
from itertools import product

import pytest
from playwright.async_api import expect

from tests.ui.test_page import VIEWS, page  # noqa: F401 - a fixture

pytestmark = pytest.mark.asyncio(loop_scope="session")
WIDTHS = (1440, 720, 390)
VIOLATIONS = """() => {
  const found = [];
  const say = (rule, one) => found.push(`${rule}: ${one.outerHTML.slice(0, 160)}`);
  const isShown = (one) => one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const all = [...document.querySelectorAll("body *")].filter(isShown);
  const named = (one) => {
    const by = (one.getAttribute("aria-labelledby") ?? "").split(/\\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join("");
    const label = [...(one.labels ?? [])].map((l) => l.textContent).join("");
    return (one.getAttribute("aria-label") || by || label || one.textContent || one.title || one.alt || "").trim();
  };
  for (const one of all) {
    const role = one.getAttribute("role");
    if (one.matches("a[href], button, select, textarea, input:not([type=hidden]), [tabindex='0'], [role=img], img") && !named(one)) say("has no name", one);
    if (one.matches("input, select, textarea") && !one.labels?.length && !one.getAttribute("aria-label")) say("has no label", one);
    if (one.tabIndex > 0) say("has a tabindex of its own", one);
    if (one.closest("[aria-hidden=true]") && one.matches("a[href], button, input, select, textarea, [tabindex='0']")) say("is hidden and focusable", one);
    if ((role === "row" || one.tagName === "TR") && !one.closest("table, [role=table], [role=grid], [role=treegrid]")) say("is a row of no table", one);
    if (["cell", "columnheader"].includes(role) && !one.closest("[role=row]")) say("is a cell of no row", one);
    if (one.matches("li") && !one.closest("ul, ol, menu")) say("is an item of no list", one);
    if (one.matches("ul, ol") && [...one.children].some((child) => child.tagName !== "LI")) say("is a list of other things", one);
    for (const name of ["aria-labelledby", "aria-controls", "aria-describedby"])
      for (const id of (one.getAttribute(name) ?? "").split(/\\s+/).filter(Boolean)) if (!document.getElementById(id)) say(`${name} leads nowhere`, one);
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) found.push(`two have the id ${id}`);
  let level = 0;
  for (const one of all.filter((one) => /^H[1-6]$/.test(one.tagName))) {
    const own = Number(one.tagName[1]);
    if (own > level + 1) say(`skips from level ${level}`, one);
    level = own;
  }
  if (!document.documentElement.lang) found.push("the page says no language");
  if (!document.title) found.push("the page has no title");
  for (const name of ["main", "nav", "header"]) if (document.querySelectorAll(name).length < 1) found.push(`there is no ${name}`);
  const parts = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  for (const one of all) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || one.matches("option, :disabled") || one.closest("svg, canvas")) continue;
    const style = getComputedStyle(one);
    const [x, y] = [light(parts(style.color)), light(ground(one))].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (x + 0.05) / (y + 0.05);
    if (ratio < (isLarge ? 3 : 4.5)) say(`contrast ${ratio.toFixed(2)}`, one);
  }
  return found;
}"""


async def views_as_people_have_them(page):  # noqa: F811
    """Open every view in both schemes and all widths, one after the other; yield which it is."""
    for scheme, width in product(("light", "dark"), WIDTHS):
        await page.page.emulate_media(color_scheme=scheme)
        await page.page.set_viewport_size({"width": width, "height": 900})
        for view in VIEWS:
            await page.open(view)
            yield view, scheme, width


async def test_no_view_breaks_a_rule_of_accessibility(page):  # noqa: F811
    page.cluster.evict(0, 4, "priority", "preempted for application train-4", pods=2)
    found = {}
    async for where in views_as_people_have_them(page):
        await expect(page.page.locator("h1")).to_have_count(1)
        for one in await page.page.evaluate(VIOLATIONS):
            found.setdefault(one, where)
    assert found == {}


async def test_the_check_finds_what_is_wrong(page):  # noqa: F811
    await page.open()
    wrong = {
        "<button></button>": "has no name",
        "<input type=text>": "has no label",
        "<p id=faint>faint</p>": "contrast",
        "<h5>deep</h5>": "skips from level",
        "<span tabindex=3>x</span>": "has a tabindex of its own",
    }
    for markup, rule in wrong.items():
        await page.page.evaluate(
            "(m) => document.querySelector('main').insertAdjacentHTML('beforeend', m)", markup
        )
        await page.page.evaluate(
            "() => document.getElementById('faint')?.style.setProperty('color', '#bbbbb0')"
        )
        found = await page.page.evaluate(VIOLATIONS)
        assert any(line.startswith(rule) for line in found), rule


async def test_focus_stays_on_a_link_while_rows_change(page):  # noqa: F811
    await page.open()
    link = page.page.locator(".tree a[href='#/queues/root.ml']").first
    await link.focus()
    page.cluster.churn(10)
    focused = "() => document.activeElement.getAttribute('href')"
    for _ in range(20):
        page.cluster.churn(2)
        await page.page.wait_for_timeout(50)
    assert await page.page.evaluate(focused) == "#/queues/root.ml"


@pytest.mark.long
@pytest.mark.limit(600, "axe-core takes a second or more for each of some eighty pages")
async def test_axe_core_finds_no_violation(page):  # noqa: F811
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    page.cluster.evict(0, 4, "priority", "preempted for application train-4", pods=2)
    found = {}
    async for where in views_as_people_have_them(page):
        await expect(page.page.locator("h1")).to_be_visible()
        await page.page.evaluate(axe)
        result = await page.page.evaluate("() => axe.run(document)")
        for rule in result["violations"]:
            found[*where, rule["id"]] = [one["html"] for one in rule["nodes"]]
    assert found == {}
