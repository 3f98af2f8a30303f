"""`kubectl muster`: the same commands, on the cluster that kubectl speaks to.

kubectl runs whatever is called `kubectl-muster` and hands on what comes after `muster`. Options of
kubectl's own (`--context`, `--kubeconfig`, `--namespace`) are taken wherever they stand.

Rule 1: the API is reached as the person who asks: through `kubectl port-forward` to its Service, on
        a free port of this machine, for as long as the command runs. `--url`, or MUSTER_API_URL,
        goes there instead.
Rule 2: the token is `--token`, else MUSTER_TOKEN, else that of the Secret `api-tokens`, if the user
        may read it.
Rule 3: a namespace is kubectl's: that of `--namespace`, else of the context. `pods` shows its pods
        (`--all-namespaces`: all), and `why NAME` means its pod or its Job of that name, before an
        application.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from services.cli.client import ApiError, RefusedError
from services.cli.program import run
from services.cli.said import complain

DEFAULT_NAMESPACE = "muster"  # where deploy/ installs it
_SERVICE, _PORT = "service/api", 9080
_START_SECONDS = 20.0  # until kubectl has said its port; the command ends with what kubectl said
_ANSWER_SECONDS = 10.0  # of one look at the cluster; it counts as nothing seen
_END_SECONDS = 5.0
_MOST_SAID = 2_000  # characters of kubectl's own output that are repeated; the rest is omitted
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")
_TOKEN = 'go-template={{index .data "initial-token" | base64decode}}'  # noqa: S105 - no token
_HELP = {"--help", "-h"}


def main(app: typer.Typer) -> None:
    """Run one command of the program; it ends as `muster` does (`exits.py`)."""
    asked, words = _options(sys.argv[1:])
    try:
        with _reached(app, Kubectl(asked), words) as arguments:
            run(app, arguments, "kubectl muster")
    except ApiError as error:
        complain(f"kubectl muster: {error}")
        sys.exit(error.exit_status)


def _options(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return kubectl's own options, and what is left for the command."""
    parser = argparse.ArgumentParser(prog="kubectl muster", add_help=False, allow_abbrev=False)
    parser.add_argument("--context", default="")
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--namespace", "-n", default="")
    parser.add_argument("--all-namespaces", "-A", action="store_true")
    there = os.environ.get("MUSTER_KUBERNETES_NAMESPACE", DEFAULT_NAMESPACE)
    parser.add_argument("--muster-namespace", default=there)
    return parser.parse_known_args(words)


class Kubectl:
    """kubectl, asked as the person at the keyboard asks it."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self._own = [
            *((f"--context={asked.context}",) if asked.context else ()),
            *((f"--kubeconfig={asked.kubeconfig}",) if asked.kubeconfig else ()),
        ]

    def output_of(self, *words: str) -> str:
        """Return what kubectl prints; "" where it refuses, or nothing in time."""
        try:
            done = subprocess.run(  # noqa: S603 - words of a list, no shell
                self._command(*words), capture_output=True, text=True, check=False,
                timeout=_ANSWER_SECONDS, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    @property
    def namespace(self) -> str:
        """Return the namespace that is meant."""
        view = ("config", "view", "--minify", "--output=jsonpath={..namespace}")
        return self.asked.namespace or self.output_of(*view) or "default"

    @contextmanager
    def forwarded(self) -> Iterator[str]:
        """Return where the API answers meanwhile. Raises ApiError with what kubectl said."""
        where = f"--namespace={self.asked.muster_namespace}"
        command = self._command(where, "port-forward", "--address=127.0.0.1", _SERVICE, f":{_PORT}")
        try:
            process = subprocess.Popen(  # noqa: S603 - words of a list, no shell
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        except OSError as error:
            raise ApiError(f"kubectl cannot be run: {error.strerror}; install it") from error
        try:
            yield f"http://127.0.0.1:{self._port(process)}"
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _port(self, process: "subprocess.Popen[str]") -> int:
        """Return the port; from then on kubectl says something of every connection."""
        output = process.stdout
        assert output is not None
        silence = threading.Timer(_START_SECONDS, process.kill)
        silence.start()
        said = ""
        for line in iter(lambda: output.readline(_MOST_SAID), ""):
            found = _FORWARDING.match(line)
            if found is not None:
                silence.cancel()
                threading.Thread(target=deque, args=(output, 0), daemon=True).start()
                return int(found[1])
            said = (said + line)[:_MOST_SAID]
        silence.cancel()
        said = said.strip() or "kubectl did not answer in time"
        raise ApiError(
            f"the API is not reached through {_SERVICE} of namespace "
            f"{self.asked.muster_namespace}: {said}. Where Muster is elsewhere, name it with "
            "--muster-namespace, or its address with --url"
        )

    def _command(self, *words: str) -> list[str]:
        return ["kubectl", *self._own, *words]


@contextmanager
def _reached(app: typer.Typer, kubectl: Kubectl, words: list[str]) -> Iterator[list[str]]:
    """Return the command's words, where its API is reached and its namespace known."""
    command = _command_of(app, words)
    asks = command is not None and any(item.name == "url" for item in command.params)
    if command is None or not asks or _HELP & set(words):
        yield words
        return
    words = _in_namespace(kubectl, command, words)
    if _has(words, "--url") or os.environ.get("MUSTER_API_URL"):
        yield words
        return
    if not _has(words, "--token") and not os.environ.get("MUSTER_TOKEN"):
        where = f"--namespace={kubectl.asked.muster_namespace}"
        token = kubectl.output_of(where, "get", "secret", "api-tokens", f"--output={_TOKEN}")
        os.environ["MUSTER_TOKEN"] = token
    with kubectl.forwarded() as url:
        yield [*words, f"--url={url}"]


def _command_of(app: typer.Typer, words: list[str]) -> Any:
    """Return the command that is meant, as the parser knows it, or None."""
    found: Any = typer.main.get_command(app)
    for word in words:
        if not hasattr(found, "commands"):
            break
        found = found.commands.get(word)
    return None if hasattr(found, "commands") else found


def _has(words: list[str], option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in words)


def _in_namespace(kubectl: Kubectl, command: Any, words: list[str]) -> list[str]:
    """Return the words with what the namespace adds to them."""
    if command.name == "pods" and not kubectl.asked.all_namespaces:
        return [*words, f"--filter=namespace={kubectl.namespace}"]
    if command.name == "why":
        name = _argument_of(command, words)
        if name in words[1:]:
            at = len(words) - 1 - words[::-1].index(name)
            return [*words[:at], _meant_by(kubectl, name), *words[at + 1 :]]
    return words


def _argument_of(command: Any, words: list[str]) -> str:
    """Return the name that `why` is asked for; "" where what was typed does not hold."""
    try:
        context = command.make_context("why", words[1:], resilient_parsing=True)
    except typer.Exit:
        return ""
    return str(context.params.get("name") or "")


def _meant_by(kubectl: Kubectl, name: str) -> str:
    """Return the key of a pod, or the application of a Job; else the name, which is one itself.

    Raises RefusedError for a pod of another scheduler, about which Muster can say nothing.
    """
    namespace = kubectl.namespace
    kinds = (f"pods/{name}", f"jobs.batch/{name}")
    said = kubectl.output_of(
        f"--namespace={namespace}", "get", *kinds, "--ignore-not-found", "--output=json"
    )
    try:
        value = json.loads(said or "{}")
        items = value.get("items", [value] if value else [])
        by_kind = {item["kind"]: item for item in items}
        if pod := by_kind.get("Pod"):
            return _key_of(pod, f"{namespace}/{name}")
        return _application_of(by_kind["Job"], namespace)
    except (ValueError, LookupError, AttributeError, TypeError):
        return name


def _key_of(pod: dict[str, Any], name: str) -> str:
    from services.shim_adapter.translation.pods import SCHEDULER_NAMES

    scheduler = pod["spec"]["schedulerName"]
    if scheduler not in SCHEDULER_NAMES:
        raise RefusedError(f"pod {name} is not Muster's: its schedulerName is {scheduler}")
    return str(pod["metadata"]["uid"])


def _application_of(job: dict[str, Any], namespace: str) -> str:
    from services.shim_adapter.translation.pods import Reading, application_id_of

    metadata = job["spec"]["template"].get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return application_id_of(labels, annotations, namespace, Reading())
