"""Builds the wheel that people install: every package of ours is below the one package ``muster``.

    pipx install .            the commands muster and kubectl-muster
    pip wheel --no-deps .     the wheel

In the repository the packages are ``services``, ``shared`` and ``tools``, names that others have,
too. A wheel is built from a copy of the tree, in which these folders lie below ``muster`` and every
import says so; a source distribution is that copy, and needs nothing of this file. What is
installed with ``-e`` is the repository itself (ADR 61).
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
]

ROOT = Path(__file__).parents[1]
TOP = "muster"
PACKAGES = ("services", "shared", "tools")
_BESIDE = ("README.md", "LICENSE")
_IMPORT = re.compile(rf"^(\s*(?:from|import) )({'|'.join(PACKAGES)})(?=[.\s])", re.MULTILINE)
_INSTEAD = (  # of pyproject.toml: what stands there once, and what the copy has in its place
    ('build-backend = "wheel_backend"\nbackend-path = ["scripts"]',
     'build-backend = "setuptools.build_meta"'),
    ('= "tools.main:main"', f'= "{TOP}.tools.main:main"'),
    ('= "tools.main:kubectl_main"', f'= "{TOP}.tools.main:kubectl_main"'),
    ('include = ["services*", "shared*", "tools*"]', f'include = ["{TOP}*"]'),
    ('"services.cli" = ["demo/*.yaml"', f'"{TOP}.services.cli" = ["demo/*.yaml"'),
    ('"services.api" = ["page/*"]', f'"{TOP}.services.api" = ["page/*"]'),
    ('"tools.replay" = ["page/*.css"]', f'"{TOP}.tools.replay" = ["page/*.css"]'),
)  # fmt: skip


def stage(folder: Path) -> None:
    """Write the copy that is built. Raises ValueError where pyproject.toml has become another."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / TOP / name, ignore=ignored)
    (folder / TOP / "__init__.py").write_text(f'"""Muster: see ``{TOP} --help``."""\n')
    for path in (folder / TOP).rglob("*.py"):
        path.write_text(_IMPORT.sub(rf"\1{TOP}.\2", path.read_text()))
    for name in _BESIDE:
        shutil.copy(ROOT / name, folder / name)
    text = (ROOT / "pyproject.toml").read_text()
    for here, there in _INSTEAD:
        if text.count(here) != 1:
            raise ValueError(f"pyproject.toml should have this once, for {__name__}: {here}")
        text = text.replace(here, there)
    (folder / "pyproject.toml").write_text(text)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, object] | None = None,
    metadata_directory: str | None = None,  # noqa: ARG001 - it would be of the repository
) -> str:
    """Build the wheel (PEP 517); return its name."""
    where = Path(wheel_directory).resolve()
    with _in_a_copy():
        return build_meta.build_wheel(str(where), config_settings)


def build_sdist(sdist_directory: str, config_settings: dict[str, object] | None = None) -> str:
    """Build the source distribution (PEP 517); return its name."""
    where = Path(sdist_directory).resolve()
    with _in_a_copy():
        return build_meta.build_sdist(str(where), config_settings)


@contextmanager
def _in_a_copy() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="muster-wheel-") as folder:
        stage(Path(folder))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
