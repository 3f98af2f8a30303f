"""The simulated cluster's state in an SQLite file, so that a restart loses no pod.

A batch of changes is one transaction, committed before anything that follows from it is said.
Records are kept as msgpack maps with the wire's own names.
"""

import sqlite3
from pathlib import Path
from typing import Any

import msgpack

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import (
    Answer,
    ApplicationRecord,
    NodeRecord,
    PodRecord,
    Proposal,
)
from shared.bus.codec import record_from_plain, record_to_plain

_SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS pods (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS applications (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS answers (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS meta (id TEXT PRIMARY KEY, record BLOB NOT NULL);
"""


class ClusterStore:
    """The file. Only one process may use it at a time; a second one is refused by its lock."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=10)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        self._meta: dict[str, bytes] = {}  # as it was written last

    def load(self) -> World:
        """Return the world as it was last saved; an empty file is an empty world."""
        world = World()
        meta = dict(self._rows("meta"))
        world.epoch = int(meta.get("epoch", 0))
        world.config = str(meta.get("config", ""))
        world.last_good_config = str(meta.get("lastGoodConfig", ""))
        world.is_config_good = bool(meta.get("isConfigGood", False))
        world.are_confirmations_held = bool(meta.get("areConfirmationsHeld", False))
        waiting = [record_from_plain(Proposal, item) for item in meta.get("proposals", [])]
        world.proposals, held_back = waiting, meta.get("heldBack")
        world.held_back = record_from_plain(Proposal, held_back) if held_back else None
        world.submissions = int(meta.get("submissions", 0))
        world.pods_made = int(meta.get("podsMade", 0))
        world.namespace_tags = {
            str(name): {str(key): str(value) for key, value in tags.items()}
            for name, tags in meta.get("namespaceTags", {}).items()
        }
        settings = meta.get("schedulerSettings", {})
        world.scheduler_settings = {str(key): str(value) for key, value in settings.items()}
        for name, value in self._rows("nodes"):
            world.nodes[name] = record_from_plain(NodeRecord, value)
        for _, value in self._rows("applications"):
            world.add_application(record_from_plain(ApplicationRecord, value))
        pods = [record_from_plain(PodRecord, value) for _, value in self._rows("pods")]
        for pod in sorted(pods, key=lambda pod: pod.sequence):
            world.add_pod(pod)
        for message_id, value in self._rows("answers"):
            world.remember(message_id, record_from_plain(Answer, value))
        world.forget_changes()
        return world

    def save(self, world: World) -> None:
        """Write what has changed since the last save, in one transaction."""
        if not (
            world.changed_nodes
            or world.changed_pods
            or world.changed_applications
            or world.changed_answers
            or world.is_meta_changed
        ):
            return
        self._db.execute("BEGIN IMMEDIATE")
        self._write("nodes", world.changed_nodes, world.nodes)
        self._write("pods", world.changed_pods, world.pods)
        self._write("applications", world.changed_applications, world.applications)
        self._write("answers", world.changed_answers, world.answers)
        meta = {
            "epoch": world.epoch,
            "config": world.config,
            "lastGoodConfig": world.last_good_config,
            "isConfigGood": world.is_config_good,
            "areConfirmationsHeld": world.are_confirmations_held,
            "proposals": [record_to_plain(item) for item in world.proposals],
            "heldBack": record_to_plain(world.held_back) if world.held_back else None,
            "submissions": world.submissions,
            "podsMade": world.pods_made,
            "namespaceTags": {name: dict(tags) for name, tags in world.namespace_tags.items()},
            "schedulerSettings": world.scheduler_settings,
        }
        packed = {key: msgpack.packb(value) for key, value in meta.items()}
        self._put("meta", [row for row in packed.items() if self._meta.get(row[0]) != row[1]])
        self._db.execute("COMMIT")
        self._meta = packed
        world.forget_changes()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _rows(self, table: str) -> list[tuple[str, Any]]:
        rows = self._db.execute(f"SELECT id, record FROM {table} ORDER BY rowid").fetchall()  # noqa: S608
        return [(name, msgpack.unpackb(blob)) for name, blob in rows]

    def _write(self, table: str, changed: dict[str, None], records: Any) -> None:
        present = [
            (key, msgpack.packb(record_to_plain(records[key]))) for key in changed if key in records
        ]
        self._put(table, present)
        absent = [(key,) for key in changed if key not in records]
        self._db.executemany(f"DELETE FROM {table} WHERE id = ?", absent)  # noqa: S608

    def _put(self, table: str, rows: list[tuple[str, bytes]]) -> None:
        statement = f"INSERT OR REPLACE INTO {table} (id, record) VALUES (?, ?)"  # noqa: S608
        self._db.executemany(statement, rows)
