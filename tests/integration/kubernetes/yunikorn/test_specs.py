"""YuniKorn's end-to-end specs: under its preset all hold; what does otherwise by default is listed."""

import pytest

from tests.integration.kubernetes.yunikorn import gangs, limits, preemption, quotas
from tests.integration.kubernetes.yunikorn.rows import SPECS
from tests.kubernetes.stack import Stack

MODULES = (gangs, limits, preemption, quotas)


@pytest.mark.parametrize("name", SPECS)
async def test_under_its_preset(server, name):
    async with Stack(server, "yunikorn") as stack:
        await SPECS[name](stack)
