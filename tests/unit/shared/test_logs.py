"""Logs: every line of a service is of one form, whoever writes it."""

import json
import logging

import pytest

from shared.runtime.logs import set_up_logs


@pytest.fixture
def set_up(monkeypatch):
    """Set logs up as in a process of its own, and the tests' own again afterwards."""

    def anew(*options):
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        set_up_logs(*options)

    yield anew
    set_up_logs(level="error")


def test_what_a_library_says_is_a_line_of_json_too(set_up, capsys):
    set_up("json")
    library = logging.getLogger("library.part")
    library.info("not said")
    library.warning("lost %s", "a place")
    try:
        json.loads("{")
    except ValueError:
        library.exception("gone")
    library.log(35, "of a level of its own")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = [(line["level"], line["event"], line["logger"]) for line in lines]
    assert told == [
        ("warning", "lost a place", "library.part"),
        ("error", "gone", "library.part"),
        ("warning", "of a level of its own", "library.part"),
    ]
    assert lines[1]["exception"].splitlines()[-1].startswith("json.decoder.JSONDecodeError")


def test_the_level_holds_for_libraries_too(set_up, capsys):
    set_up("text", "error")
    logging.getLogger("library").warning("not said")
    logging.getLogger("library").error("said")
    out = capsys.readouterr().err
    assert "not said" not in out
    assert "said" in out
