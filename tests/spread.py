"""How tests are spread over workers: a file, or a group, has one worker; groups come first.

There are twice as many workers as processors: tests that need a broker, a browser or processes wait
for most of their time. What a group shares (a broker, a browser, a wheel that is built) is there once,
and groups begin first, for they take longest.
"""

from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling


class ByFile(LoadGroupScheduling):
    """Gives each worker a file after the other, or a group, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return str(super()._split_scope(nodeid)).partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Any:
    """Return who gives the workers their tests."""
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put groups first, where there are workers to share the rest."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
