"""Files that people name: how far they are read, and how their names are shown."""

import pytest

from services.cli import files
from services.cli.exits import Exit
from services.cli.files import MAX_FILE_BYTES, bytes_of, text_of
from services.cli.said import complain, printable
from services.cli.yaml_file import Inline, YamlFileError, one_document, write_inline
from tests.table import each_row
from tests.unit.cli import answers

TOO_LONG = f"/dev/zero: more than {MAX_FILE_BYTES} bytes"


NAMING_A_FILE = (
    ("config", "check"),
    ("config", "apply"),
    ("config", "diff"),
    ("submit", "-f"),
    ("delete", "-f"),
    ("what-if", "-f"),
    ("what-if", "--queues"),
    ("scenario", "run"),
    ("up", "--port", "0", "--config"),
    ("up", "--port", "0", "--nodes"),
)


@pytest.mark.parametrize("words", NAMING_A_FILE)
def test_a_file_without_an_end_is_refused_by_every_command_with_one_status(muster, words):
    result = muster(*words, "/dev/zero")
    assert (result.status, TOO_LONG in result.err, result.out) == (Exit.NO_FILE, True, "")


@pytest.mark.parametrize(
    "words",
    [
        *NAMING_A_FILE,
        ("replay",),
        ("up", "--port", "0", "--kubeconfig"),
        ("up", "--port", "0", "--from"),
        ("apps", "--token"),
    ],
)
def test_a_file_that_is_not_there_is_one_status_for_every_command(muster, words):
    result = muster(*words, "@" * ("--token" in words) + "/no/such.yaml")
    assert (result.status, result.out) == (Exit.NO_FILE, "")
    assert "/no/such.yaml: No such file or directory" in " ".join(result.err.split())


@each_row(
    ("text", "said"),
    [
        ("apiVersion: v1\nkind: Pod\n", "this is a Pod: a queues.yaml, YuniKorn's ConfigMaps or"),
        ("---\nkind: Secret\n---\nkind: Pod\n", "line 2: this is a Secret: "),
        ("just words", "this is no map: "),
        ("replicas: 3\nimage: x\n", "it has no partitions: "),
        ("replicas: 3\nimage: x\n", "; the keys found are replicas, image"),
        ("partitions: 3\n", "unmarshal"),
    ],
)
def test_a_file_that_is_no_queue_configuration_is_named(api, muster, tmp_path, text, said):
    api.says("GET /v1/config", {**answers.CONFIG, "text": ""})
    file = tmp_path / "file.yaml"
    file.write_text(text)
    for command in ("check", "diff"):
        result = muster("config", command, str(file))
        shown = result.err.replace(f"{file}:2: ", "line 2: ")
        assert (result.status, said in shown) == (Exit.REFUSED, True), result.err


def test_a_key_with_queues_that_is_not_read_is_named(muster, tmp_path):
    one = "    partitions: [{name: default, queues: [{name: root, submitacl: '*'}]}]\n"
    data = f"  queues.yaml: |\n{one}  default: |\n{one}"
    file = tmp_path / "maps.yaml"
    file.write_text(f"kind: ConfigMap\nmetadata: {{name: yunikorn-configs}}\ndata:\n{data}")
    result = muster("config", "check", str(file))
    assert result.status == 0
    assert "warning: not read: default; service.policyGroup says which key is read" in result.err


def test_a_file_is_read_to_its_limit_and_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 4)
    file = tmp_path / "a"
    file.write_bytes(b"a\r\nb")
    assert (bytes_of(file), text_of(file)) == (b"a\r\nb", "a\nb")
    file.write_bytes(b"abcde")
    with pytest.raises(OSError, match="more than 4 bytes"):
        bytes_of(file)
    with pytest.raises(OSError, match="no file has such a name"):
        bytes_of(tmp_path / "a\0b")


def test_what_a_terminal_would_obey_is_shown_and_not_obeyed(muster, capsys):
    name = "no\x1b[31msuch"
    for words in (("config", "check", name), ("replay", name), ("submit", "-f", name)):
        result = muster(*words)
        assert "\x1b" not in result.err
        assert r"no\x1b[31msuch: No such file or directory" in result.err
    complain("two\nlines\x07")
    assert capsys.readouterr().err == "two\nlines\\x07\n"
    assert printable("a\nb\udcff") == "a b\\udcff"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: " + "[" * 100, 2, "nested deeper than 60"),
        ("a: 1\n- b", 2, "not YAML: "),
        ("a: !!python/name:os.system", 1, "is no value of the tag"),
        ("a: 1\n---\nb: 1", 1, "one document was expected, found 2"),
        ("a: !!int " + "9" * 500, 1, "a value cannot be read"),
        ("a: 1\nb: 2\na: 3", 3, 'mapping key "a" already defined at line 1'),
        ("a:\n- {c: 1}\n- {b: 1, 'b': 2}", 3, 'mapping key "b" already defined at line 3'),
    ],
)
def test_a_file_of_yaml_that_does_not_hold_is_a_sentence_with_its_line(text, line, said):
    with pytest.raises(YamlFileError, match=said) as caught:
        one_document(text)
    assert caught.value.line == line


def test_a_file_with_nothing_in_it_holds_nothing():
    assert one_document("") == (None, None)
    assert one_document("# nothing") == (None, None)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a: 1\nq:\n  # said\n  b: 0x10\n  c: [1]\n", "\n\n\n  b: 0x10\n  c: [1]\n"),
        ("a: 1\nq: {b: 010, c: yes}\n", "\n   {b: 010, c: yes}"),
        ("a: &x 1\nq: {b: *x}\n", "b: 1\n"),
        ("é: 1\nq: {é: ü}\nz: 1", "\n   {é: ü}"),
        ("\ufeffq: {b: 1}\n", "b: 1\n"),
    ],
)
def test_a_map_is_kept_with_its_own_words_and_lines_where_it_stands_alone(text, kept):
    root, value = one_document(text)
    write_inline(text, "q", root, value)
    assert value["q"] == Inline(kept)


@pytest.mark.parametrize(
    "text", ["q: 1", "q: [1]", "q:", "!!set {q: {}}", "[1]", "? [q]\n: {a: 1}"]
)
def test_what_is_no_map_is_left_as_it_is(text):
    try:
        root, value = one_document(text)
    except YamlFileError:
        return
    before = repr(value)
    write_inline(text, "q", root, value)
    assert repr(value) == before
