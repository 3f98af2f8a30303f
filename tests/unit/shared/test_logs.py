"""Logs: every line of a service is of one form, whoever writes it."""

import json
import logging

import pytest
import structlog

from shared.runtime.logs import set_up_logs


@pytest.fixture
def set_up(monkeypatch):
    """Set logs up as in a process of its own."""

    def anew(*options):
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        set_up_logs(*options)

    return anew


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


@pytest.mark.xdist_group("logs")
@pytest.mark.parametrize("turn", [1, 2])
def test_what_a_test_makes_of_the_logs_is_gone_in_the_next(turn, capsys):
    logging.getLogger("library").info("not said, in turn %d", turn)
    assert capsys.readouterr() == ("", "")
    structlog.reset_defaults()
    logging.getLogger().setLevel(logging.INFO)
