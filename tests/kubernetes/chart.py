"""The chart's made templates, rendered: by helm where it is there, else as far as their forms go.

The forms are those of scripts/make_chart.py: a value, a value as YAML, an include of a name given
here, `if` and `with` on lines of their own, and a checksum. Anything else is an error.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "deploy/helm"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
BY_HAND = {"_helpers.tpl", "secrets.yaml", "configuration.yaml", "NOTES.txt"}
NAMESPACE = "muster"
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
_COMMENT = re.compile(r"\{\{- /\*.*?\*/ -\}\}\n", re.DOTALL)
_ACTION = re.compile(r"\{\{-? (.*?) \}\}")
_OPENS = re.compile(r"^ *\{\{- (?:if|with) (\S+) \}\}$")
_ENDS = re.compile(r"^ *\{\{- end \}\}$")
_AS_YAML = re.compile(r"toYaml (\S+) \| nindent (\d+)")
_INCLUDED = re.compile(r'include "(\S+)" \.(?: \| nindent (\d+))?')


def made() -> list[Path]:
    """Return the templates that are made."""
    return [path for path in (CHART / "templates").iterdir() if path.name not in BY_HAND]


def rendered(values: dict[str, Any], namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Return the objects of the made templates."""
    files = made()
    helm = shutil.which("helm")
    texts = (
        [_by_helm(helm, files, values, namespace)]
        if helm
        else [_by_forms(path, values, namespace) for path in files]
    )
    return [item for text in texts for item in yaml.safe_load_all(text) if item]


def helm_template(helm: str, values: dict[str, Any], *words: str) -> str:
    """Return what `helm template` prints."""
    done = subprocess.run(
        [helm, "template", "muster", str(CHART), "--values=-", *words],
        input=yaml.safe_dump(values), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _by_helm(helm: str, files: list[Path], values: dict[str, Any], namespace: str) -> str:
    found = helm_template(helm, values, f"--namespace={namespace}")
    parts = re.split(r"^---\n# Source: muster/templates/(\S+)\n", found, flags=re.MULTILINE)[1:]
    names = {path.name for path in files}
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return "---\n".join(text for name, text in pairs if name in names)


def _by_forms(path: Path, values: dict[str, Any], namespace: str) -> str:
    lines: list[str] = []
    open_blocks: list[Any] = []  # what each `if` or `with` found; nothing is written below a false
    for line in _COMMENT.sub("", path.read_text()).splitlines():
        opens = _OPENS.match(line)
        if opens:
            open_blocks.append(_value(opens[1], values, open_blocks))
        elif _ENDS.match(line):
            open_blocks.pop()
        elif all(open_blocks):
            lines.append(_line(line, values, open_blocks, namespace))
    assert not open_blocks, path
    return "\n".join(lines)


def _line(line: str, values: dict[str, Any], scopes: list[Any], namespace: str) -> str:
    def text(action: re.Match[str]) -> str:
        said = action[1]
        if said == ".Release.Namespace":
            return namespace
        if found := _AS_YAML.fullmatch(said):
            return _indented(yaml.safe_dump(_value(found[1], values, scopes)), int(found[2]))
        if found := _INCLUDED.fullmatch(said):
            included = _include(found[1], values)
            return _indented(included, int(found[2])) if found[2] else included
        if said == '.Files.Get "files/definitions.json" | sha256sum':
            return "a-checksum"
        paths = said.removesuffix(" | default .Chart.AppVersion")
        found_values = (_value(path, values, scopes) for path in paths.split(" | default "))
        value = next(filter(None, found_values), "" if paths == said else VERSION)
        assert isinstance(value, str | int), said
        return str(value)

    return _ACTION.sub(text, line)


def _indented(text: str, by: int) -> str:
    return "".join(f"\n{' ' * by}{line}" for line in text.strip().splitlines())


def _include(name: str, values: dict[str, Any]) -> str:
    broker = values["rabbitmq"]
    return {
        "muster.labels": "app.kubernetes.io/part-of: muster",
        "muster.broker": f"{broker['host']}:{broker['port']}",
    }[name]


def _value(path: str, values: dict[str, Any], scopes: list[Any]) -> Any:
    if path == ".":
        return scopes[-1]
    assert path.startswith(".Values."), f"{path}: no form of a made template"
    found: Any = values
    for name in path.removeprefix(".Values.").split("."):
        found = found[name]
    return found
