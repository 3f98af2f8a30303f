"""A queue property, added to a copy of the tree as CONTRIBUTING's table says: a leaf without gangs.

What is put in is the files of the row and what obeys it; REST and the page of settings have it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CORE = "services/core/scheduler"
OBEYS = f"{CORE}/intake/updates.py"
CHANGES = {
    f"{CORE}/model/queue_settings.py": [
        ("    sort_policy: str = FIFO\n", "    takes_gangs: bool = True\n"),
        (
            "    return QueueSettings(\n",
            '        takes_gangs=properties.get("gangs.admission", "") != DISABLED,\n',
        ),
    ],
    "scripts/words/settings.yaml": [
        ("\nproperties:\n", "  gangs.admission: '`disabled`: its leaves take no gangs'\n"),
    ],
    OBEYS: [
        (
            '    if is_zero(wanted):\n        return ""\n',
            '    if not queue.settings.takes_gangs:\n        return f"queue {queue.path} is for pods"\n',
        ),
    ],
}
USED = """
import asyncio
import pathlib
import sys

sys.path.insert(0, "scripts")
from settings_page import settings_page
from shared.messages.interface import AddApplicationRequest
from tests.builders import config_of, section
from tests.unit.api.following import System

leaves = "{name: p, parent: true, properties: {gangs.admission: disabled}, queues: [{name: a}]}"
system = System(config_of(leaves, "{name: b}"))
system.node("n", vcore=9)
wanted = [AddApplicationRequest(f"gang-{q}", f"root.{q}", placeholder_ask={"vcore": 2})
          for q in ("p.a", "b")]
said = system.update(new_applications=tuple(wanted))
print([(item.application_id, item.reason) for item in section(said, "rejected_applications")])
print([item.application_id for item in section(said, "accepted_applications")])
queue = asyncio.run(system.get("/ws/v1/partition/default/queue/root.p.a")).json()
print(queue["properties"])
page, wrong = settings_page()
print([line for line in page.splitlines() if "gangs.admission" in line], wrong)
system.check()
"""


def test_a_queue_property_with_its_field_in_rest_takes_the_files_of_its_row(tmp_path):
    for folder in ("tools", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for folder in ("services", "shared", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)  # with what is compiled
    for name, changes in CHANGES.items():
        file = tmp_path / name
        text = file.read_text()
        for before, more in changes:
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, before + more)
        file.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", USED],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[('gang-p.a', 'queue root.p.a is for pods')]",
        "['gang-b']",
        "{'gangs.admission': 'disabled'}",
        "['| `gangs.admission` | `disabled`: its leaves take no gangs |'] []",
    ]


def test_the_row_names_the_files():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (row,) = re.findall(r"^\| a queue property \|.*$", text, re.MULTILINE)
    for name in CHANGES.keys() - {OBEYS}:  # that is where the rule holds, wherever it is
        assert f"`{name.removeprefix(CORE + '/')}`" in row
