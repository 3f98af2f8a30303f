"""Stores the simulated cluster's state in an SQLite file, so that a restart loses no pod.

A batch of changes is one transaction, committed before any resulting message is sent. Records are
msgpack maps with the wire names. A record that cannot be read or written is skipped and logged, and
stays in the file as it is. A number beyond int64 is limited to it.
"""

import fcntl
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import structlog

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import (
    Answer,
    ApplicationRecord,
    NodeRecord,
    PodRecord,
    Proposal,
    ReportedUsage,
)
from shared.bus.codec import record_from_plain, record_to_plain
from shared.bus.errors import NotNowError, PoisonError
from shared.model.numbers import saturated

T = TypeVar("T")
LOCK_FILE = "lock"
_BEYOND_INT64 = re.compile(rb"\xcf[\x80-\xff]")  # as msgpack writes such a number
log = structlog.get_logger("muster.shim_adapter")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS pods (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS applications (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS answers (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS usage (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS meta (id TEXT PRIMARY KEY, record BLOB NOT NULL);
"""


class FolderInUseError(OSError):
    """Another shim adapter uses the state directory; the message says where, and what to do."""


class StaleWorldError(RuntimeError):
    """The file has a later epoch than the world to be written."""


class FolderLock:
    """An exclusive lock of a directory, until it is closed or the process ends."""

    def __init__(self, folder: Path) -> None:
        """Lock the directory; create it if needed. Raises FolderInUseError, OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / LOCK_FILE).open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            said = f"{folder} is in use by another shim adapter"
            raise FolderInUseError(f"{said}: stop it first, or name another folder") from error

    def close(self) -> None:
        """Unlock the directory."""
        self._file.close()


class ClusterStore:
    """The file. Its user must hold the directory's lock (``FolderLock``)."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # a long save runs in a thread of its own, and whoever saves waits for it
        self._db = sqlite3.connect(path, isolation_level=None, timeout=1, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")  # an answer is promised: the power may go
        self._db.executescript(_SCHEMA)
        self._meta: dict[str, bytes] = {}  # as it was written last

    def load(self) -> World:
        """Return the world as last saved; an empty file is an empty world."""
        world = World()
        meta = dict(self._rows("meta"))
        world.epoch = int(meta.get("epoch", 0))
        world.epochs = {str(name): int(epoch) for name, epoch in meta.get("epochs", {}).items()}
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
        for name, node in self._records("nodes", NodeRecord):
            world.nodes[name] = node
        for _, application in self._records("applications", ApplicationRecord):
            world.add_application(application)
        names = tuple(str(name) for name in meta.get("partitions", []))
        if names:
            world.set_partitions(names)
        pods = [pod for _, pod in self._records("pods", PodRecord)]
        for pod in sorted(pods, key=lambda pod: pod.sequence):
            world.add_pod(pod)
        for message_id, answer in self._records("answers", Answer):
            world.answers.remember(message_id, answer)
        for _, usage in self._records("usage", ReportedUsage):
            world.usage.record(usage.partition, usage.record)
        world.forget_changes()
        return world

    def save(self, world: World) -> None:
        """Write what has changed since the last save, in one transaction.

        Raises NotNowError, having written nothing, if the disk is full, busy or failing; the
        changes stay pending. Raises StaleWorldError.
        """
        if not (
            world.changed_nodes
            or world.changed_pods
            or world.changed_applications
            or world.answers.changed
            or world.usage.changed
            or world.is_meta_changed
        ):
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._check_epoch(world)
            packed = self._write_all(world)
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise NotNowError(f"the state cannot be saved: {error}") from error
        finally:
            if self._db.in_transaction:
                with suppress(sqlite3.OperationalError):
                    self._db.execute("ROLLBACK")
        self._meta = packed
        world.forget_changes()

    def _write_all(self, world: World) -> dict[str, bytes]:
        self._write("nodes", world.changed_nodes, world.nodes)
        self._write("pods", world.changed_pods, world.pods)
        self._write("applications", world.changed_applications, world.applications)
        self._write("answers", world.answers.changed, world.answers.by_message)
        self._write("usage", world.usage.changed, world.usage.by_key)
        meta = {
            "epoch": world.epoch,
            "epochs": world.epochs,
            "partitions": list(world.partitions),
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
        return packed

    def _check_epoch(self, world: World) -> None:
        """Raise StaleWorldError if another instance has begun a later epoch."""
        found = self._db.execute("SELECT record FROM meta WHERE id = 'epoch'").fetchone()
        epoch = int(msgpack.unpackb(found[0])) if found else 0
        if epoch > world.epoch:
            raise StaleWorldError(f"the file is of epoch {epoch}, we are of {world.epoch}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _rows(self, table: str) -> Iterator[tuple[str, Any]]:
        """Yield a table's rows one at a time, to save memory."""
        rows = self._db.execute(f"SELECT id, record FROM {table} ORDER BY rowid")  # noqa: S608
        for name, blob in rows:
            yield name, _unpacked(blob)

    def _records(self, table: str, cls: type[T]) -> Iterator[tuple[str, T]]:
        for key, value in self._rows(table):
            try:
                yield key, record_from_plain(cls, value)
            except PoisonError as error:
                log.error("a record cannot be read", table=table, id=key, error=str(error))  # noqa: TRY400

    def _write(self, table: str, changed: dict[str, None], records: Any) -> None:
        present: list[tuple[str, bytes]] = []
        for key in changed:
            try:
                if key in records:
                    present.append((key, msgpack.packb(record_to_plain(records[key]))))
            except (PoisonError, ValueError, OverflowError) as error:
                log.error("a record cannot be written", table=table, id=key, error=ascii(error))  # noqa: TRY400
        self._put(table, present)
        absent = [(key,) for key in changed if key not in records]
        self._db.executemany(f"DELETE FROM {table} WHERE id = ?", absent)  # noqa: S608

    def _put(self, table: str, rows: list[tuple[str, bytes]]) -> None:
        statement = f"INSERT OR REPLACE INTO {table} (id, record) VALUES (?, ?)"  # noqa: S608
        self._db.executemany(statement, rows)


def _unpacked(blob: bytes) -> Any:
    """Decode a record, with numbers limited to int64."""
    value = msgpack.unpackb(blob)
    return _bounded(value) if _BEYOND_INT64.search(blob) else value


def _bounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_bounded(item) for item in value]
    return saturated(value) if type(value) is int else value
