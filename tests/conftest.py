"""Fixtures of every test: hypothesis profiles, the broker, the shared data where it is there."""

import gc
import logging
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers

from shared.runtime.logs import set_up_logs
from tests.broker import ContainerBroker, PrivateBroker, given_broker, own_broker
from tests.options import NOT_REAL, OPTION, REAL_GROUP, is_real_asked

pytest_plugins = ["tests.limits", "tests.spread"]

settings.register_profile(
    "default", max_examples=30, stateful_step_count=40, deadline=None, report_multiple_bugs=False,
    derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile(
    "soak", max_examples=3_000, stateful_step_count=80, deadline=None, report_multiple_bugs=False,
    derandomize=False, database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile(
    "hunt", max_examples=400, stateful_step_count=60, deadline=None, report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.generate), derandomize=False, database=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile(
    "trial", settings.get_profile("default"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
if settings().derandomize:
    # Else what is drawn would depend on which of our modules this process has imported by then:
    # Hypothesis now and then draws a constant that stands in one.
    assert not providers._get_local_constants.__code__.co_argcount
    providers._get_local_constants = lambda: providers._local_constants
set_up_logs(level="error")  # before pytest has handlers: what libraries say takes our form

MAX_TEXT_IN_NAME = 24
MAX_NAME = 100  # characters of a test's, with its parameters: fewer
ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
NO_DATA = "real manifests, queue files, traces, tables (../shared) are not beside this checkout"
HAS_DATA = all((SHARED / name).is_dir() for name in ("data", "conformance"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        action="store_true",
        help="run the Kubernetes tests on a real API server too, K3s unless the environment names one",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage seldom, and never among what is collected: it was a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


_room = {"each": MAX_TEXT_IN_NAME}  # parameter of the test that is being collected has so much


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, object, object]:
    """Share out what a test's name leaves its parameters."""
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    amount = sum(names.count(",") + 1 if isinstance(names, str) else len(names) for names in marks)
    left = MAX_NAME - len("[]") - len(metafunc.definition.name)
    _room["each"] = min(MAX_TEXT_IN_NAME, left // max(1, amount) - 2)
    return (yield)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Cut what a long value is called in the name of its test: the number of its row tells them."""
    text = val.encode("unicode_escape") if isinstance(val, str) else val
    if isinstance(text, bytes):
        text = text.decode("ascii", "backslashreplace")
    room = _room["each"]
    if isinstance(text, str | int | float) and len(str(text)) > room:
        return f"{str(text)[: room - 1].strip()}~"
    return None


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups, else before they are made
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group what shares a broker; leave out what needs a real API server that nobody asked for.

    What reads real data is skipped where there is none, all for the same reason: that is one line.
    """
    long = [item.nodeid for item in items if len(item.name) >= MAX_NAME]
    if long:
        raise pytest.UsageError("give these tests shorter names, or their parameters ids:", *long)
    if not is_real_asked(config):
        items[:] = [item for item in items if not _is_on_a_real_server(item)]
    skip = None if HAS_DATA else pytest.mark.skip(reason=NO_DATA)
    for item in items:
        if skip is not None and item.get_closest_marker("data"):
            item.add_marker(skip, append=False)
        _group(item)


def _group(item: pytest.Item) -> None:
    """Keep what needs the broker on one worker, so that there is one broker, if it has no group.

    What breaks brokers, and what starts services, has another one: it waits for longer.
    """
    fixtures = getattr(item, "fixturenames", ())
    if "broker_url" in fixtures:
        item.add_marker(pytest.mark.broker)
    if item.get_closest_marker("xdist_group"):
        return
    if "broker_to_break" in fixtures:
        item.add_marker(pytest.mark.xdist_group("processes"))
    elif item.get_closest_marker("broker"):
        item.add_marker(pytest.mark.xdist_group("broker"))


def _is_on_a_real_server(item: pytest.Item) -> bool:
    group = item.get_closest_marker("xdist_group")
    return group is not None and group.args == (REAL_GROUP,)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say why tests were skipped, a line a reason: a line a test pushes what failed out of sight."""
    if not is_real_asked(config):
        terminalreporter.write_line(f"NOT RUN on a real API server: {NOT_REAL}")
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"SKIPPED [{count}] {reason}")


@pytest.fixture(autouse=True)
def _logs() -> None:
    """Set the logs up anew: what a test before has made of them is not in what this one prints."""
    set_up_logs(level="error")
    logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def broker_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a RabbitMQ broker; a failure, never a skip, when there is none."""
    return given_broker() or str(request.getfixturevalue("broker_to_break").url)


@pytest.fixture(scope="session")
def broker_to_break() -> Iterator[ContainerBroker | PrivateBroker]:
    """Yield a broker that a test may kill, stop and bring to its limits, and leaves as it was."""
    with own_broker() as own:
        yield own


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real manifests and cases that may stand beside the project."""
    if not HAS_DATA:
        pytest.skip(NO_DATA)
    return SHARED
