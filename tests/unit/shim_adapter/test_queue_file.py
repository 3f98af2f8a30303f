"""The files in which people have their queues: all of them are read, with the lines of the file."""

import json
import textwrap

import pytest

from services.shim_adapter.queue_file import queue_file
from shared.queueconfig import QueueConfigError, load_configuration

QUEUES = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: a
"""


def indented(text, spaces):
    return textwrap.indent(text, " " * spaces)


CONFIGS = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: yunikorn-configs, namespace: yunikorn}}
data:
  service.schedulingInterval: 1s
  muster.scheduler.preset: yunikorn
  queues.yaml: |
{indented(QUEUES, 4)}"""
DEFAULTS = f"""\
apiVersion: v1
kind: ConfigMap
metadata:
  name: yunikorn-defaults
data:
  muster.scheduler.preset: design
  muster.scheduler.backfill: enabled
  queues.yaml: |
{indented(QUEUES.replace("name: a", "name: of-the-defaults"), 4)}"""


def leaf(found):
    (partition,) = load_configuration(found.text).partitions
    return partition.queues[0].queues[0].name


@pytest.mark.parametrize(
    ("text", "where", "before"),
    [
        (QUEUES, "", 0),
        (CONFIGS, "queues.yaml of ConfigMap yunikorn-configs", 7),
        (f"yunikornDefaults:\n  service.logLevel: '-1'\n  queues.yaml: |\n{indented(QUEUES, 4)}image: x\n",
         "queues.yaml of yunikornDefaults", 3),
        (f"core: {{replicas: 1}}\nqueues: |-\n{indented(QUEUES, 2)}config:\n  a: b\n",
         "queues.yaml of the chart's values", 2),
        (f"kind: List\nitems:\n- kind: ConfigMap\n  metadata: {{name: mine}}\n  data:\n    queues.yaml: |\n{indented(QUEUES, 6)}",
         "queues.yaml of ConfigMap mine", 6),
        (CONFIGS.replace("queues.yaml", "gpu.yaml"), "gpu.yaml of ConfigMap yunikorn-configs", 7),
    ],
    ids=["queues", "configmap", "yunikorn-values", "muster-values", "list", "only-key"],
)  # fmt: skip
def test_each_form_holds_the_queues_and_says_on_which_line(text, where, before):
    found = queue_file(text)
    assert (found.where, found.before) == (where, before)
    assert leaf(found) == "a"
    assert "name: default" in text.splitlines()[found.line(2) - 1]


def test_what_kubectl_prints_as_json_and_what_older_charts_had_is_read():
    printed = {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"queues.yaml": QUEUES}}
    found = queue_file(json.dumps(printed, indent=2))
    assert (leaf(found), found.line(3), found.line(7)) == ("a", 7, 7)  # all of it stands there
    assert leaf(queue_file(f"replicaCount: 1\nconfiguration: |\n{indented(QUEUES, 2)}")) == "a"


def test_of_the_two_config_maps_the_second_wins_key_by_key():
    for text in (f"{DEFAULTS}---\n{CONFIGS}", f"{CONFIGS}---\n{DEFAULTS}"):
        found = queue_file(text)
        assert leaf(found) == "a"
        own = {"backfill": "enabled", "preset": "yunikorn"}
        assert found.settings == {**own, "service.schedulingInterval": "1s"}
    assert leaf(queue_file(DEFAULTS)) == "of-the-defaults"


def test_the_policy_group_says_which_key_holds():
    both = CONFIGS.replace(
        "  queues.yaml: |\n", f"  service.policyGroup: gpu\n  gpu.yaml: |\n{indented(QUEUES, 4)}  queues.yaml: |\n"
    ).replace("name: a\n", "name: of-gpu\n", 1)  # fmt: skip
    assert leaf(queue_file(both)) == "of-gpu"
    assert queue_file(both).where.startswith("gpu.yaml of")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CONFIGS.replace("queues.yaml: |", "service.policyGroup: gpu\n  queues.yaml: |"),
         "no key gpu.yaml in it; there are queues.yaml: service.policyGroup says which one is used"),
        ("kind: ConfigMap\nmetadata: {name: x}\ndata: {a.yaml: b, c.yaml: d}\n",
         "no key queues.yaml in it; there are a.yaml, c.yaml: "),
        ("kind: ConfigMap\nmetadata: {name: x}\n", "no key queues.yaml in it: service.policyGroup"),
        ("yunikornDefaults: {service.logLevel: '1'}\n", "no key queues.yaml in it"),
        ("- 1", "this is no map: a queues.yaml, YuniKorn's ConfigMaps or Helm values are expected"),
        ("kind: Pod\n", "this is a Pod: a queues.yaml, "),
        ("a: {b: c}\n", "it has no partitions: "),
    ],
)  # fmt: skip
def test_what_does_not_say_which_queues_hold_is_a_sentence(text, said):
    with pytest.raises(QueueConfigError) as error:
        queue_file(text)
    assert said in error.value.message


@pytest.mark.parametrize("text", ["", "partitions: [", "partitions: 3", "# none\n", "\x00"])
def test_what_may_be_a_queues_yaml_is_judged_as_queues_yaml(text):
    assert queue_file(text).text == text
