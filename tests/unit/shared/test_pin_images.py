"""Pinning by digest: every image that deploy/ begins from, all of them or none, as often as one likes."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("pin_images", ROOT / "scripts/pin_images.py")
pin_images = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pin_images)


@pytest.fixture
def deploy(tmp_path):
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    return tmp_path


def docker_that_answers(folder, monkeypatch, *lines):
    """A ``docker`` that pulls in silence, and knows the digests that are given, image by image."""
    folder.mkdir(exist_ok=True)
    program = folder / "docker"
    cases = "\n".join(f'"image "*" {image}") echo "{digest}" ;;' for image, digest in lines)
    program.write_text(f'#!/bin/sh\ncase "$*" in\n"pull "*) ;;\n{cases}\n*) exit 1 ;;\nesac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def begins_from(root):
    """What the files name that is not made here, as written."""
    files = [*(root / "deploy").glob("*.yaml"), *(root / "deploy/kubernetes").glob("*.yaml")]
    files.append(root / "deploy/helm/values.yaml")
    text = (root / "deploy/Dockerfile").read_text()
    found = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    for file in files:
        found += re.findall(r"^\s*image: (\S+)", file.read_text(), re.MULTILINE)
    return [name for name in found if not name.startswith("muster")]


def test_every_image_is_pinned_and_pinned_anew(deploy, tmp_path, monkeypatch):
    before = begins_from(deploy)
    assert len(before) >= 4
    for mark in ("a", "b"):
        digests = [(name, f"{name.split(':')[0]}@sha256:{mark * 64}") for name in pin_images.IMAGES]
        docker_that_answers(tmp_path / "bin", monkeypatch, *digests)
        assert pin_images.main(deploy) == 0
        assert begins_from(deploy) == [f"{name}@sha256:{mark * 64}" for name in before]


def test_an_image_that_came_from_no_registry_pins_nothing(deploy, tmp_path, monkeypatch, capsys):
    before = begins_from(deploy)
    first, second = pin_images.IMAGES
    docker_that_answers(
        tmp_path / "bin", monkeypatch, (first, f"python@sha256:{'a' * 64}"), (second, "")
    )
    assert pin_images.main(deploy) == 1
    assert begins_from(deploy) == before
    assert "it came from no registry; nothing was changed" in capsys.readouterr().err


def test_without_docker_it_says_so(deploy, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert pin_images.main(deploy) == 1
    assert "docker is not installed" in capsys.readouterr().err
