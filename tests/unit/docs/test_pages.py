"""The generated pages: what the code has and nobody has said a word about is found."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY

from tests.table import each_row

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import check_docs  # noqa: E402
import limits_page  # noqa: E402
import metrics_page  # noqa: E402
import settings_page  # noqa: E402

from shared.model.reasons import EvictionCause, Reason  # noqa: E402
from shared.model.scheduler_settings import PRESETS  # noqa: E402
from shared.queueconfig import load_schedulable  # noqa: E402


def tree(tmp_path, text):
    module = tmp_path / "services" / "core" / "configuration.py"
    module.parent.mkdir(parents=True)
    module.write_text(text)
    return tmp_path


@pytest.fixture
def words(tmp_path, monkeypatch):
    def have(content):
        path = tmp_path / "words.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        monkeypatch.setattr(limits_page, "WORDS", path)
        monkeypatch.setattr(limits_page, "ROOT", tmp_path)

    return have


def test_a_limit_that_nobody_has_described_is_an_error(tmp_path, words):
    tree(tmp_path, "MAX_REMEMBERED = 3\nOTHER = 4\n")
    words({})
    _, wrong = limits_page.limits_page()
    assert len(wrong) == 1
    assert wrong[0].startswith("services.core.configuration.MAX_REMEMBERED: say what it bounds")


def test_a_limit_is_described_in_its_own_line(tmp_path, words):
    tree(tmp_path, "MAX_REMEMBERED = 3  # configurations; the oldest go\n")
    words({})
    page, wrong = limits_page.limits_page()
    assert wrong == []
    assert "| configurations | 3 | the oldest go | `services/core/configuration.py`" in page


def test_half_a_description_is_none(tmp_path, words):
    tree(tmp_path, "MAX_REMEMBERED = 3  # one that comes, one that holds\n")
    words({})
    assert len(limits_page.limits_page()[1]) == 1


def test_a_description_of_what_has_gone_is_an_error(tmp_path, words):
    tree(tmp_path, "OTHER = 4\n")
    words({"Core": {"configuration.MAX_REMEMBERED": ["configurations", "the oldest go"]}})
    assert limits_page.limits_page()[1] == [
        "scripts/words/limits.yaml: configuration.MAX_REMEMBERED names nothing"
    ]


@each_row(
    ("value", "unit", "text"),
    [
        (3 * 2**20, "bytes", "3 MiB"),
        (8_192, "bytes", "8 KiB"),
        (2_000_001, "bytes", "2,000,001 bytes"),
        (600.0, "seconds", "10 min"),
        (90.0, "seconds", "90 s"),
        (30_000, "ms", "30 s"),
        (3 * 24 * 3_600 * 10**9, "ns", "3 days"),
        (100_000, "", "100,000"),
    ],
)
def test_values_are_written_as_people_do(value, unit, text):
    assert limits_page._text(value, unit) == text


def test_settings_without_words_and_words_without_settings_are_errors():
    found = settings_page._differ("properties", {"gone": ""}, ["new"])
    assert found == [
        "scripts/words/settings.yaml: properties has no line for new: say what it means",
        "scripts/words/settings.yaml: properties: there is no gone any more",
    ]


def test_every_variable_of_a_service_has_its_meaning():
    for line in settings_page._environment().splitlines():
        assert line.rsplit("|", 2)[1].strip(), line


def test_a_figure_without_words_is_an_error(monkeypatch):
    monkeypatch.delitem(metrics_page.FIGURES, "epoch")
    assert metrics_page.metrics_page()[1] == ["metrics_page.py: FIGURES has no line for epoch"]


def test_no_metric_is_both_a_figure_and_a_counter():
    metrics_page.metrics_page()  # loads every module that defines one
    figures = {f"muster_{name}" for name in metrics_page.FIGURES}
    assert figures.isdisjoint(REGISTRY._names_to_collectors)


def test_operations_says_what_to_do_at_every_alert():
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    page = (ROOT / "docs" / "operations.md").read_text().partition("## Alerts")[2]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| Muster")]
    assert {name.strip() for row in rows for name in row.split(",")} == alerts


TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text()


def test_every_alert_has_its_section_of_troubleshooting():
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    headings = check_docs.headings(TROUBLESHOOTING)
    for rule in rules["groups"][0]["rules"]:
        page, _, heading = rule["annotations"]["runbook"].partition("#")
        assert (page, heading in headings) == ("docs/troubleshooting.md", True), rule["alert"]


def test_troubleshooting_has_every_reason_and_every_policy_of_an_eviction():
    assert not [reason for reason in Reason if f"| `{reason}` |" not in TROUBLESHOOTING]
    assert not [law for law in EvictionCause if f"| `{law}` |" not in TROUBLESHOOTING]


def test_the_recipes_are_configurations_that_hold():
    blocks = re.findall(
        r"^```yaml\n(.*?)^```", (ROOT / "docs" / "how-to.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) >= 3
    for block in blocks:
        load_schedulable(block)


def test_the_page_of_settings_has_what_each_preset_sets():
    page, _ = settings_page.settings_page()
    for name, preset in PRESETS.items():
        column = ("muster", "design", "yunikorn").index(name)
        for key, value in preset.items():
            (row,) = re.findall(rf"^\| `{key}` \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)
            assert row[column] == f"`{value}`"
