"""YuniKorn's own verdict on every queue configuration beside the project."""

import re

import pytest

from shared.queueconfig import QueueConfigError, load_configuration


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def test_every_valid_file_is_accepted(shared_data):
    files = sorted((shared_data / "data/queues/valid").glob("*.yaml"))
    assert len(files) == 18
    for file in files:
        try:
            load_configuration(file.read_text())
        except QueueConfigError as error:
            raise AssertionError(f"{file.name}:{error.line}: {error}") from error


def test_every_invalid_file_is_rejected_with_yunikorn_s_message(shared_data):
    folder = shared_data / "data/queues/invalid"
    rows = re.findall(
        r"^\| (\S+\.yaml) \|.*\| `(.+)` \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert len(rows) == len(list(folder.glob("*.yaml"))) == 31
    for name, expected in rows:
        with pytest.raises(QueueConfigError) as caught:
            load_configuration((folder / name).read_text())
        assert squeezed(caught.value.message) == squeezed(expected), name
        assert caught.value.line > 0, name
