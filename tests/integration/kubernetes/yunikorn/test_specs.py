"""YuniKorn's end-to-end specs: under its preset all hold; what does otherwise by default is listed."""

import re
from pathlib import Path

import pytest

from tests.integration.kubernetes.conftest import REAL
from tests.integration.kubernetes.yunikorn import (
    gangs,
    limits,
    more_basics,
    more_config,
    more_gangs,
    more_limits,
    more_preemption,
    preemption,
    quotas,
)
from tests.integration.kubernetes.yunikorn.otherwise import OTHERWISE
from tests.integration.kubernetes.yunikorn.rows import SPECS
from tests.kubernetes.stack import Stack

pytestmark = pytest.mark.parametrize("server", ["double", REAL], indirect=True)
MODULES = (
    gangs,
    limits,
    more_basics,
    more_config,
    more_gangs,
    more_limits,
    more_preemption,
    preemption,
    quotas,
)
PAGE = Path(__file__).parents[4] / "docs" / "from-yunikorn.md"
HEADING = "## YuniKorn's end-to-end specs"


@pytest.mark.parametrize("name", SPECS)
async def test_under_its_preset(server, name):
    async with Stack(server, "yunikorn") as stack:
        await SPECS[name](stack)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SPECS if name not in OTHERWISE])
async def test_by_default(server, name):
    async with Stack(server, "") as stack:
        await SPECS[name](stack)


@pytest.mark.parametrize("name", OTHERWISE)
async def test_otherwise_by_default(server, name):
    async with Stack(server, "") as stack:
        await OTHERWISE[name](stack)


@pytest.mark.parametrize("name", OTHERWISE)
async def test_what_is_said_to_be_otherwise_is(server, name):
    async with Stack(server, "") as stack:
        with pytest.raises(AssertionError):
            await SPECS[name](stack)


async def test_the_page_lists_what_is_otherwise(server):
    text = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(OTHERWISE)
