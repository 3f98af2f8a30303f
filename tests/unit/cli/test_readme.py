"""What the README tells a user to type is there."""

import re
from pathlib import Path

from typer.testing import CliRunner

from services.cli.up import DEMO_SETTINGS
from services.core.scheduler.model.settings import settings_from
from tests.table import each_row
from tools.main import app

README = (Path(__file__).parents[3] / "README.md").read_text()
COMMANDS = re.findall(r"^muster ([a-z-]+(?: (?:check|apply|run)\b)?)", README, re.MULTILINE)


@each_row("command", [*COMMANDS, "up"])
def test_a_command_of_the_readme_is_one(command):
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0


def test_the_readme_types_the_commands_that_it_is_known_for():
    assert set(COMMANDS) == {
        "apps", "app", "node", "queues", "submit", "config check", "why", "what-if", "trace",
        "scenario run", "replay",
    }  # fmt: skip


def test_the_demo_keeps_what_the_first_sentence_promises():
    assert "hold nothing at all" in README.replace("\n", " ")
    assert settings_from(DEMO_SETTINGS.items()).gang_admission == "cluster"
