"""`muster up`: judged before it starts, left at any time, and ends when there is nothing to do."""

import functools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.cli import up
from services.cli.exits import Exit
from services.cli.launcher import LocalCluster
from services.cli.simulated_nodes import (
    BLOCK_LABEL,
    RACK_LABEL,
    NodesError,
    in_racks,
    nodes_of,
)
from services.cli.up import UpOptions, run_up
from shared.messages.constraints import Taint
from tests.patience import PATIENCE_SECONDS
from tests.table import each_row

ROOT = Path(__file__).parents[3]
GIB = 2**30


def refused(capsys, status=Exit.CONFIGURATION, **options) -> str:
    """Return the one sentence with which it does not start."""
    assert run_up(UpOptions(**{"port": 0, "nodes": "1", **options})) == status
    out = capsys.readouterr()
    assert out.out == ""
    (line,) = out.err.splitlines()
    assert line.startswith("muster up: ")
    return line.removeprefix("muster up: ")


# --- judged before anything starts --------------------------------------------------------------


@pytest.fixture
def nothing_starts(monkeypatch):
    def start(*_, **__):
        raise AssertionError("something has started")

    monkeypatch.setattr(up, "LocalCluster", start)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"prefix": "a.b"}, "--prefix 'a.b': up to 64 letters, digits, - and _ are expected"),
        ({"prefix": ""}, "--prefix '': up to 64"),
        ({"bus": "nats://x"}, "'nats://x': expected memory, amqp://… or amqps://…"),
        ({"nodes": "/nope"}, "--nodes /nope: No such file or directory; a number or a file is"),
        ({"nodes": "-1"}, "--nodes -1: No such file"),
        ({"nodes": "9" * 5000}, "--nodes: at most 100,000 nodes"),
        ({"config": Path("/nope")}, "/nope: No such file or directory"),
        ({"state_dir": Path("/dev/null/x")}, "/dev/null/x: Not a directory"),
        ({"kubeconfig": Path("/nope")}, "/nope: No such file or directory"),
        ({"plugins": "nope"}, "plugin nope: it is not installed; there are: "),
    ],
)
def test_what_cannot_be_is_one_sentence_before_anything_starts(capsys, options, sentence):
    is_file = "No such file" in sentence or "Not a directory" in sentence
    status = Exit.NO_FILE if is_file else Exit.CONFIGURATION
    assert refused(capsys, status, **options).startswith(sentence)


@pytest.mark.usefixtures("nothing_starts")
def test_a_bad_configuration_is_named_once_with_its_line(capsys, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("partitions:\n  - name: default\n    queues: [{name: 'a b'}]\n")
    said = refused(capsys, config=file)
    assert said.count("bad.yaml") == 1
    assert "line" in said


@pytest.mark.usefixtures("nothing_starts")
def test_a_port_that_is_taken_is_one_sentence(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(capsys, port=port)
    assert said == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; another Muster? "
        "--port 0 takes a free one"
    )


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_a_port_that_is_none_is_typed_wrong(muster, port):
    result = muster("up", "--port", port)
    assert (result.status, result.out) == (Exit.USAGE, "")
    assert "Invalid value for '--port'" in result.err


def test_a_broker_that_is_not_there_is_one_sentence_without_its_password(capfd, monkeypatch):
    monkeypatch.setattr("shared.bus.links.CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(up, "_SLOW_SECONDS", 0.0)
    options = UpOptions(bus="amqp://guest:secret@127.0.0.1:1/", port=0, nodes="1")
    assert run_up(options) == Exit.CONFIGURATION
    waiting, said = capfd.readouterr().err.splitlines()
    assert waiting == "muster up: waiting for RabbitMQ at 127.0.0.1:1; Ctrl-C ends"
    assert said.startswith("muster up: no RabbitMQ at 127.0.0.1:1: ")
    assert "Is it running there?" in said


# --- its end ------------------------------------------------------------------------------------


def test_once_with_nothing_to_do_ends(capsys):
    assert run_up(UpOptions(once=True, nodes="1", port=0)) == Exit.DONE
    out = capsys.readouterr().out
    assert "There is nothing to do: no application, and --once. See --demo." in out


def test_a_core_that_never_tells_is_a_sentence(capsys, monkeypatch):
    monkeypatch.setattr(up, "_READY_SECONDS", 0.3)
    monkeypatch.setattr(up, "_SLOW_SECONDS", PATIENCE_SECONDS)  # on a busy machine it would say so
    silent = SimpleNamespace(handle=lambda *_: [])
    cluster = functools.partial(
        LocalCluster, wrap_machine=lambda name, machine: silent if name == "core" else machine
    )
    monkeypatch.setattr(up, "LocalCluster", cluster)
    said = refused(capsys)
    assert said.startswith("not up after 0.3 s: the core has not reported.")
    assert "--prefix" in said


class Process:
    """A `muster up` of its own, whose lines are read as they come."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tools.main", "up", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.lines: list[str] = []

    def until(self, text: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return self.lines[-1]
        raise AssertionError(f"{text!r} was not said: {self.lines}")

    def interrupt(self) -> tuple[int, list[str]]:
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out.splitlines()


def test_it_says_how_to_leave_and_what_to_try_and_is_left_with_ctrl_c():
    run = Process("--demo", "--nodes", "2")
    up_line = run.until("Muster is up: 2 nodes, API on http://127.0.0.1:")
    url = up_line.split("API on ")[1].split(",")[0]
    assert not url.endswith(":0")
    run.until("Ctrl-C ends it. To try in another terminal:")
    run.until("muster submit -f FILE")
    hints = "\n".join(run.lines)
    assert f"export MUSTER_API_URL={url}" in hints
    assert "muster app spark-pi" in hints
    assert max(map(len, run.lines)) <= 80
    run.until("too-large")
    status, rest = run.interrupt()
    assert (status, rest[-1]) == (Exit.DONE, "Muster has stopped.")


def test_ctrl_c_is_heeded_before_it_is_up():
    """The broker never answers: its address is one that drops what is sent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        run = Process("--bus", f"amqp://guest:guest@127.0.0.1:{silent.getsockname()[1]}/")
        run.until("waiting for RabbitMQ")
        status, rest = run.interrupt()
    assert (status, rest) == (Exit.INTERRUPTED, ["muster up: stopped before it was up"])


# --- nodes --------------------------------------------------------------------------------------


def test_nodes_have_what_is_stated_beside_what_every_node_has():
    first, second = nodes_of(
        "2", "cpu=96,memory=768Gi,ephemeral-storage=1Ti", 8, "zone=a, disk=ssd"
    )
    assert (first.name, second.name) == ("node-0000", "node-0001")
    assert first.capacity == {
        "vcore": 96_000,
        "memory": 768 * GIB,
        "ephemeral-storage": 2**40,
        "pods": 110,
        "nvidia.com/gpu": 8,
    }
    assert first.labels == {"zone": "a", "disk": "ssd"}
    (plain,) = nodes_of("1", "", 0, "")
    assert plain.capacity["ephemeral-storage"] == 100 * GIB
    assert nodes_of("0", "", 0, "") == ()


def test_nodes_come_from_a_file_as_a_scenario_or_kubectl_has_them(tmp_path):
    file = tmp_path / "nodes.yaml"
    file.write_text("""
nodes:
  - {name: gpu, count: 2, capacity: {cpu: 96, nvidia.com/gpu: 8}, labels: {kind: gpu}}
  - {name: small, capacity: {cpu: "2", pods: 5}, taints: [{key: dedicated, value: x}]}
---
kind: List
apiVersion: v1
items:
  - kind: Node
    apiVersion: v1
    metadata: {name: real, labels: {zone: b}}
    spec: {unschedulable: true, taints: [{key: k, effect: NoSchedule}]}
    status: {allocatable: {cpu: 1500m, memory: 2Gi, pods: "9"}, capacity: {cpu: 2}}
""")
    nodes = {node.name: node for node in nodes_of(str(file), "", 0, "")}
    assert list(nodes) == ["gpu-0", "gpu-1", "small", "real"]
    assert nodes["gpu-1"].capacity == {"vcore": 96_000, "nvidia.com/gpu": 8, "pods": 110}
    assert nodes["gpu-1"].labels == {"kind": "gpu"}
    assert nodes["small"].capacity["pods"] == 5
    assert nodes["small"].taints == (Taint("dedicated", "x", "NoSchedule"),)
    assert nodes["real"].capacity == {"vcore": 1500, "memory": 2 * GIB, "pods": 9}
    assert nodes["real"].is_cordoned


@each_row(
    ("text", "sentence"),
    [
        ("", ".yaml: no document in it"),
        ("[1]", "document 1: a map was expected, found list"),
        ("kind: Pod", "document 1: expected `nodes:` with a list, or Nodes as `kubectl get nodes"),
        ("nodes: [{name: a}]", "document 1: nodes.0.capacity: Field required"),
        ("nodes: [{name: a, capacity: {cpu: x}}]", "nodes.0.capacity: cpu: 'x' is not a quantity"),
        ("nodes: [{name: a, capacity: {}, color: 1}]", "nodes.0.color: no such key"),
        ("nodes: [{name: a, capacity: {}, count: 0}]", "nodes.0.count: Input should be greater"),
        ("kind: Node\nmetadata: {name: a}", "a Node with metadata.name and status.allocatable"),
        ("kind: Node\nstatus: {allocatable: {cpu: 1}}", "a Node with metadata.name and status"),
        (
            "nodes: [{name: a, capacity: {}}, {name: a, capacity: {}}]",
            "document 1: a second node 'a'",
        ),
        ("nodes: [" + "[" * 100 + "]" * 100 + "]", "nested deeper than"),
    ],
)
def test_a_file_of_nodes_that_holds_none_says_where_and_what(tmp_path, text, sentence):
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    with pytest.raises(NodesError) as error:
        nodes_of(str(file), "", 0, "")
    assert sentence in str(error.value)
    assert str(error.value).count(str(file)) == 1


@each_row(
    ("options", "sentence"),
    [
        (("3", "cpu", 0, ""), "--capacity: 'cpu': expected NAME=VALUE, more with a comma between"),
        (("3", "cpu=lots", 0, ""), "--capacity: cpu: 'lots' is not a quantity"),
        (("3", "cpu=-1", 0, ""), "--capacity: vcore: an amount below 0"),
        (("3", "", 0, "=x"), "--labels: '=x': expected NAME=VALUE"),
        (("3", "cpu=1, cpu=2", 0, ""), "--capacity: cpu is named twice"),
        (("nodes.yaml", "", 4, ""), "--nodes nodes.yaml is a file, which says what its nodes have"),
    ],
)
def test_what_a_node_cannot_have_is_a_sentence(options, sentence):
    with pytest.raises(NodesError) as error:
        nodes_of(*options)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(("racks", "blocks"), [(5, 2), (6, 4), (20, 3), (2, 2)])
def test_a_rack_is_in_one_block(racks, blocks):
    nodes = in_racks(nodes_of("20", "", 0, ""), racks, blocks)
    pairs = {tuple(node.labels[label] for label in (RACK_LABEL, BLOCK_LABEL)) for node in nodes}
    assert len(pairs) == len({rack for rack, _ in pairs}) == racks
    assert len({block for _, block in pairs}) == blocks
