"""Every field of docs/rules/rest.md#fields, read from the answers of a system that has seen it all.

The tables were written from YuniKorn's answers, field by field: ``!`` is always there, everything else only when it
is neither zero nor empty, and no name is there that they do not know. What an answer never shows
in any system is found too: every row of the tables must have been seen.
"""

import re
from datetime import datetime

import pytest

from shared.messages.constraints import Constraints
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UserGroupInformation,
)
from tests.builders import START_NS
from tests.unit.api.following import System

# --- the tables ---------------------------------------------------------------------------------
# name[!] type, where a type is one of ``_CHECKS``, a table's name, ``[X]`` for a list of X, or
# ``{X}`` for a map from texts to X.

TABLES = {
    "Cluster": """
        startTime ns; rmBuildInformation [{text}]; partition! text; clusterName! text""",
    "Partition": """
        clusterId! text; name! text; capacity! Capacity; nodeSortingPolicy! Sorting;
        preemptionEnabled! bool; quotaPreemptionEnabled! bool; totalNodes int;
        applications {int}; totalContainers int; state text; lastStateTransitionTime ns""",
    "Capacity": "capacity {int}; usedCapacity {int}; utilization {percent}",
    "Sorting": "type text; resourceWeights {float}",
    "Queue": """
        queuename! path; status QueueStatus; partition! any_text; pendingResource {int};
        maxResource {int}; guaranteedResource {int}; allocatedResource {int};
        preemptingResource {int}; headroom {int}; isLeaf! bool; isManaged! bool;
        properties {text}; parent path; template Template; children [Queue]; childNames [path];
        absUsedCapacity {percent}; maxRunningApps int; runningApps int;
        currentPriority! int32; allocatingAcceptedApps [text]; sortingPolicy Policy;
        prioritySorting! bool; preemptionEnabled! bool; isPreemptionFence! bool;
        preemptionDelay duration; quotaPreemptionDelay duration; isPriorityFence! bool;
        priorityOffset int32""",
    "Template": """
        maxApplications int; maxResource {int}; guaranteedResource {int}; properties {text}""",
    "Node": """
        nodeID! text; hostName text; rackName text; attributes {text}; capacity {whole};
        allocated {whole}; occupied {whole}; available {whole}; utilized {percent};
        allocations [Allocation]; foreignAllocations [Foreign]; schedulable! bool;
        isReserved! bool; reservations [text]""",
    "Allocation": """
        allocationKey! text; allocationTags {text}; requestTime ns; allocationTime ns;
        allocationDelay int; resource {int}; priority number; nodeId text; applicationId text;
        placeholder bool; placeholderUsed bool; taskGroupName text; preempted bool;
        originator bool""",
    "Foreign": """
        allocationKey! text; allocationTags {text}; allocationTime ns; resource {int};
        priority number; nodeId text; preemptable bool""",
    "Ask": """
        allocationKey! text; allocationTags {text}; requestTime ns; resource {int};
        priority number; requiredNodeId text; applicationId text; placeholder bool;
        taskGroupName text; allocationLog [Log]; triggeredPreemption bool; originator bool;
        schedulingAttempted bool; triggeredScaleUp bool""",
    "Log": "message text; lastOccurrence ns; count int32",
    "Application": """
        applicationID! text; usedResource {int}; maxUsedResource {int}; pendingResource {int};
        partition! text; queueName! path; submissionTime ns; finishedTime ns; requests [Ask];
        allocations [Allocation]; applicationState Lifecycle; user text; groups [text];
        rejectedMessage text; stateLog [StateChange]; placeholderData [Placeholders];
        hasReserved bool; reservations [text]; maxRequestPriority int32; startTime ms;
        resourceHistory! History; backoffDeadline rfc3339""",
    "StateChange": "time ns; applicationState Lifecycle",
    "Placeholders": "taskGroupName text; count int; minResource {int}; replaced int; timedout int",
    "History": "resourceUsage {{int}}; preemptedResource {{int}}; placeholderResource {{int}}",
    "Rule": "name! text; parameters {text}; filter Filter; parentRule Rule",
    "Filter": """
        type! any_text; userList [text]; groupList [text]; userExp text; groupExp text""",
    "User": "userName! text; groups {text}; queues Usage",
    "Group": "groupName! text; applications [text]; queues Usage",
    "Usage": """
        queuePath! path; resourceUsage {int}; runningApplications [text]; maxResources {int};
        maxApplications int; children [Usage]""",
    "Utilizations": "clusterId! text; partition! text; utilizations [Utilization]",
    "Utilization": "type text; utilization [Bucket]",
    "Bucket": "bucketName Step; numOfNodes int; nodeNames [text]",
    "Health": "Healthy! bool; HealthChecks [HealthCheck]",
    "HealthCheck": "Name text; Succeeded! bool; Description text; DiagnosisMessage text",
    "Events": """
        InstanceUUID! uuid; LowestID! int; HighestID! int; EventRecords! Records""",
    "Event": """
        type int; objectID text; message text; timestampNano ns; eventChangeType int;
        eventChangeDetail int; referenceID text; resource! EventResource""",
    "EventResource": "resources {Quantity}",
    "Quantity": "value int",
    "AppSample": "timestamp! ns; totalApplications! number",
    "ContainerSample": "timestamp! ns; totalContainers! number",
    "State": """
        timestamp ns; partitions [Partition]; applications [Application]; appHistory [AppSample];
        nodes [NodesOf]; clusterInfo [Cluster]; containerHistory [ContainerSample];
        queues [Queue]; rmDiagnostics {text}; logLevel text; config Config;
        placementRules [RulesOf]; eventStreams [EventStream]""",
    "NodesOf": "partitionName! text; nodesInfo [Node]",
    "RulesOf": "partition! text; rules [Rule]",
    "EventStream": "Name text; CreatedAt rfc3339",
    "Config": """
        Partitions! [PartitionConfig]; Checksum! text; Extra! {text};
        DeadlockDetectionEnabled! bool; DeadlockTimeoutSeconds! int""",
    "PartitionConfig": """
        Name! text; Queues! [QueueConfig]; PlacementRules [RuleConfig]; Limits [Limit];
        Preemption! PreemptionConfig; NodeSortPolicy! NodeSortConfig;
        UserGroupResolver! ResolverConfig""",
    "PreemptionConfig": "Enabled set_bool; QuotaPreemptionEnabled set_bool",
    "NodeSortConfig": "Type! text; ResourceWeights {float}",
    "ResolverConfig": "type text",
    "QueueConfig": """
        Name! text; Parent bool; Resources! Resources; MaxApplications int; Properties {text};
        AdminACL text; SubmitACL text; ChildTemplate! TemplateConfig; Queues [QueueConfig];
        Limits [Limit]""",
    "TemplateConfig": "MaxApplications int; Properties {text}; Resources! Resources",
    "Resources": "Guaranteed {text}; Max {text}",
    "Limit": """
        Limit! any_text; Users [text]; Groups [text]; MaxResources {text}; MaxApplications int""",
    "RuleConfig": """
        Name! text; Create bool; Filter! FilterConfig; Parent RuleConfig; Value text""",
    "FilterConfig": "Type! any_text; Users [text]; Groups [text]",
}
STATES = {
    "New", "Accepted", "Running", "Rejected", "Completing", "Completed", "Failing", "Failed",
    "Expired", "Resuming",
}  # fmt: skip
SECOND = 10**9
DAY_NS = 24 * 3600 * SECOND


def is_int(value, most=2**63 - 1):
    return type(value) is int and -most - 1 <= value <= most


def is_text(value):
    return type(value) is str


def is_moment(value, unit_ns):
    """Whether a number counts these units since 1970, within a day of when all this happens."""
    return is_int(value) and abs(value * unit_ns - START_NS) < DAY_NS


def is_one_of(*values):
    return lambda value: value in values


def matches(pattern):
    return lambda value: is_text(value) and re.fullmatch(pattern, value) is not None


def is_rfc3339(value):
    return is_text(value) and value.endswith("Z") and bool(datetime.fromisoformat(value))


_CHECKS = {
    "text": is_text,
    "any_text": is_text,  # "" too, where it is always there
    "path": matches(r"root(\..+)?|"),
    "number": matches(r"-?[0-9]+"),
    "duration": matches(r"([0-9.]+[a-zµ]+)+"),
    "uuid": matches(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "bool": lambda value: type(value) is bool,
    "set_bool": lambda value: type(value) is bool,  # false where it was set to that
    "int": is_int,
    "whole": lambda value: is_int(value) and value != 0,
    "int32": lambda value: is_int(value, 2**31 - 1),
    "percent": lambda value: is_int(value) and 0 <= value <= 1000,
    "float": lambda value: type(value) in (int, float),
    "ns": lambda value: is_moment(value, 1),
    "ms": lambda value: is_moment(value, 10**6) or value == -62135596800000,
    "rfc3339": is_rfc3339,
    "QueueStatus": is_one_of("Active", "Draining", "Stopped"),
    "Policy": is_one_of("fifo", "fair"),
    "Lifecycle": is_one_of(*STATES),
    "Step": matches("|".join(f"{at}-{at + 10}%" for at in range(0, 100, 10))),
}


def fields_of(table):
    """Return the fields of a table: name, whether it is always there, and type."""
    rows = [row.split() for row in TABLES[table].split(";")]
    return {name.rstrip("!"): (name.endswith("!"), kind) for name, kind in rows}


class Walk:
    """A walk over answers: what is wrong in them, and which rows of the tables were seen."""

    def __init__(self):
        self.wrong = []
        self.seen = set()

    def value(self, value, kind, where):
        if kind.startswith("["):
            self._list(value, kind[1:-1], where)
        elif kind.startswith("{"):
            self._map(value, kind[1:-1], where)
        elif kind == "Records" and value is None:
            pass  # no records are null, not an empty list
        elif kind == "Records":
            self._list(value, "Event", where)
            assert value, f"{where}: no records are null"
        elif kind in TABLES:
            self._table(value, kind, where)
        elif not _CHECKS[kind](value):
            self.wrong.append(f"{where}: {value!r} is no {kind}")

    def _list(self, value, kind, where):
        if type(value) is not list:
            self.wrong.append(f"{where}: {value!r} is no list")
            return
        for at, item in enumerate(value):
            self.value(item, kind, f"{where}[{at}]")

    def _map(self, value, kind, where):
        if type(value) is not dict:
            self.wrong.append(f"{where}: {value!r} is no map")
            return
        if list(value) != sorted(value):
            self.wrong.append(f"{where}: the keys are not in order: {list(value)}")
        for name, item in value.items():
            self.value(item, kind, f"{where}[{name}]")

    def _table(self, value, table, where):
        if type(value) is not dict:
            self.wrong.append(f"{where}: {value!r} is no {table}")
            return
        fields = fields_of(table)
        for name in value.keys() - fields.keys():
            self.wrong.append(f"{where}: {name} is no field of {table}")
        for name, (is_always, kind) in fields.items():
            if name not in value:
                if is_always:
                    self.wrong.append(f"{where}: {name} is missing")
                continue
            found = value[name]
            self.seen.add(f"{table}.{name}")
            if not is_always and kind != "set_bool" and not found:
                self.wrong.append(f"{where}: {name} is {found!r}, and there all the same")
            self.value(found, kind, f"{where}.{name}")


# --- a system that has seen it all --------------------------------------------------------------

CONFIG = """\
partitions:
  - name: default
    placementrules:
      - name: user
        create: true
        filter: {type: allow, users: [eve, mallory], groups: [staff]}
        parent: {name: fixed, value: root.people, create: true}
      - {name: provided, create: true, filter: {type: deny, users: ["guest.*"]}}
      - {name: tag, value: namespace, create: true, filter: {type: deny, groups: ["guest.*"]}}
    nodesortpolicy: {type: binpacking, resourceweights: {vcore: 4.0, memory: 1.5}}
    preemption: {enabled: true, quotapreemptionenabled: true}
    usergroupresolver: {type: os}
    limits: [{limit: all, users: ["*"], maxapplications: 500}]
    queues:
      - name: root
        adminacl: admin
        submitacl: '*'
        queues:
          - name: gangs
            maxapplications: 20
            properties: {application.sort.policy: fifo}
            limits:
              - {limit: one, users: [ann], maxresources: {vcore: 30}, maxapplications: 9}
              - {limit: many, groups: [dev], maxresources: {memory: 100k}}
          - {name: plain, resources: {max: {vcore: 40}}}
          - {name: tired, properties: {application.unschedasks.backoff: '2'}}
          - name: law
            parent: true
            queues:
              - {name: rich, resources: {guaranteed: {vcore: 1}}, properties: {preemption.delay: 1s}}
              - {name: poor, resources: {guaranteed: {vcore: 5}}, properties: {priority.offset: '2', preemption.delay: 1s}}
          - name: made
            parent: true
            childtemplate:
              maxapplications: 10
              properties: {application.sort.policy: fair}
              resources: {guaranteed: {memory: 4k}, max: {memory: 6M}}
"""
PARTITION = "/ws/v1/partition/default"
ANN = UserGroupInformation("ann", ("dev",))
ONE = {"vcore": 1000, "pods": 1}
TAGS = {"kubernetes.io/meta/namespace": "ns", "kubernetes.io/meta/podName": "pod"}


class Lived(System):
    """A system whose replica hears of things when they happen."""

    has_clock = True


def lived() -> System:
    """Return a system with gangs, reservations, preemption, limits, queues made, foreign pods."""
    system = Lived(CONFIG, settings=(("service.clusterId", "mycluster"),))
    for name in ("n1", "n2"):
        attributes = {
            "si/hostname": name, "si/rackname": "r1", "si/instance-type": "large", "zone": "a",
        }  # fmt: skip
        amount = {"vcore": 10_000, "memory": 100_000, "pods": 100}
        system.update(nodes=(NodeInfo(name, NodeAction.CREATE, amount, attributes),))
    _foreign(system)
    _gangs(system)
    _ended(system)
    _preempted(system)
    _reserved(system)
    return system


def _foreign(system):
    for key, kind, priority in (("f1", "default", 0), ("f2", "static", 123)):
        pod = Allocation(
            key, "", "n1", {"vcore": 500, "memory": 5}, priority=priority,
            create_time_ns=system.now_ns, allocation_tags={"foreign": kind},
        )  # fmt: skip
        system.update(allocations=(pod,))


def ask(system, app, key, vcore, **more):
    more = {"create_time_ns": system.now_ns, "allocation_tags": TAGS, **more}
    system.update(asks=(AllocationAsk(key, app, {"vcore": vcore, "pods": 1}, **more),))
    system.now_ns += SECOND


def _gangs(system):
    """A gang that has begun, with a placeholder that was replaced, and one that waits in part."""
    for name, members, vcore in (("gang", 2, 1000), ("waits", 1, 1000)):
        total = {"vcore": members * vcore, "pods": members}
        system.application(name, "root.gangs", ugi=ANN, placeholder_ask=total)
        for at in range(members):
            ask(system, name, f"{name}-{at}", vcore, placeholder=True, task_group_name="tg")
    group = {"task_group_name": "tg", "create_time_ns": system.now_ns}
    system.asks("gang", ["real"], ONE, originator=True, allocation_tags=TAGS, **group)
    release = AllocationRelease("gang", "gang-0", TerminationType.PLACEHOLDER_REPLACED)
    system.now_ns += 10 * SECOND
    system.update(releases=(release,))
    assert system.partition.applications["gang"].placeholder_used
    for name, vcore in (("begun", 1000), ("stays", 99_000), ("late", 1000)):  # one never fits
        system.application(
            name, "root.gangs", ugi=ANN, placeholder_ask={"vcore": 2 * vcore, "pods": 2}
        )
        ask(
            system, name, f"{name}-0", vcore, placeholder=True, task_group_name="tg",
            originator=True,
        )  # fmt: skip
    system.fire("late", "placeholder")
    late = AllocationRelease("late", "late-0", TerminationType.TIMEOUT)
    system.update(releases=(late,))


def _ended(system):
    system.application("done", "root.made.tom", ugi=UserGroupInformation("tom"))
    ask(system, "done", "k", 100)
    system.application("made", "root.made.tim", ugi=UserGroupInformation("tim"))
    system.now_ns += 5 * SECOND
    system.update(releases=(AllocationRelease("done", "k", TerminationType.STOPPED_BY_RM),))
    system.fire("done", "completing")
    system.application("refused", "root.law")  # no leaf


def _preempted(system):
    """What is above its guarantee goes for what is below it: one has gone, one is on its way."""
    only = Constraints(node_selector=(("kind", "small"),))
    small = {"vcore": 5000, "pods": 9}
    system.update(nodes=(NodeInfo("n3", NodeAction.CREATE, small, labels={"kind": "small"}),))
    for name in ("rich", "poor"):
        system.application(name, f"root.law.{name}")
    for at in range(5):
        ask(system, "rich", f"rich-{at}", 1000, constraints=only)
    for at in range(2):
        ask(system, "poor", f"poor-{at}", 1000, constraints=only, priority=1)
    system.fire_own("preemption")
    gone = next(iter(system.partition.applications["rich"].released))
    preempted = TerminationType.PREEMPTED_BY_SCHEDULER
    system.now_ns += 10 * SECOND
    system.update(releases=(AllocationRelease("rich", gone, preempted),))


def _reserved(system):
    """What has no room holds a node; what is for one node alone waits for that; one backs off."""
    system.application("holds", "root.plain")
    ask(system, "holds", "holds", 9500)
    system.application("wants", "root.plain", ugi=UserGroupInformation("tom"))
    ask(system, "wants", "wants", 9500)
    ask(system, "wants", "pinned", 9500, constraints=Constraints(required_node="n2"))
    system.application("tired", "root.tired")
    nowhere = {"constraints": Constraints(node_selector=(("kind", "none"),))}
    system.asks("tired", ["t1", "t2", "t3"], ONE, create_time_ns=system.now_ns, **nowhere)
    system.fire_own("reservation")


async def walked(system, answers):
    walk = Walk()
    for path, kind in answers:
        response = await system.get(path, Accept="application/json")
        assert response.status_code == 200, (path, response.text)
        walk.value(response.json(), kind, path)
    return walk


async def test_every_field_of_the_contract():
    system = lived()
    system.machine.streams.join("here", system.model.events, 0, system.now_ns)
    walk = await walked(system, ANSWERS)
    assert walk.wrong == []
    assert {f"{table}.{name}" for table in TABLES for name in fields_of(table)} == walk.seen


async def test_what_took_a_placeholders_place_was_asked_for_when_that_was():
    system = lived()
    app = (await system.get(f"{PARTITION}/application/gang")).json()
    real, placeholder = sorted(app["allocations"], key=lambda item: item["allocationKey"] != "real")
    wanted = {"requestTime": START_NS, "allocationTime": START_NS + 3 * SECOND}
    assert {key: real[key] for key in wanted} == wanted
    assert real["allocationDelay"] == 3 * SECOND
    assert placeholder["requestTime"] == placeholder["allocationTime"] == START_NS + SECOND
    queues = (await system.get(f"{PARTITION}/queues")).json()
    # of a parent always, docs/rules/scheduling.md#order-of-queues
    assert queues["sortingPolicy"] == "fair"


@pytest.mark.parametrize("text", ["", CONFIG])
async def test_every_field_before_there_is_anything(text):
    """Nothing is there but what is always there: no zeros, no empty lists, no null."""
    system = Lived(text)
    whole = [(path, kind) for path, kind in ANSWERS if not OF_ONE.search(path)]
    walk = await walked(system, whole)
    assert walk.wrong == []


Q = f"{PARTITION}/queue"
OF_ONE = re.compile(r"/(application|node|user|group)/|root\.")
ANSWERS = (
    ("/ws/v1/clusters", "[Cluster]"),
    ("/ws/v1/config", "Config"),
    ("/ws/v1/history/apps", "[AppSample]"),
    ("/ws/v1/history/containers", "[ContainerSample]"),
    ("/ws/v1/partitions", "[Partition]"),
    (f"{PARTITION}/placementrules", "[Rule]"),
    (f"{PARTITION}/queues", "Queue"),
    (f"{Q}/root.law?subtree", "Queue"),
    (f"{Q}/root.gangs", "Queue"),
    (f"{PARTITION}/nodes", "[Node]"),
    (f"{PARTITION}/node/n1", "Node"),
    (f"{Q}/root.gangs/applications", "[Application]"),
    (f"{Q}/root.gangs/application/gang", "Application"),
    (f"{PARTITION}/application/gang", "Application"),
    (f"{PARTITION}/applications/active", "[Application]"),
    (f"{PARTITION}/applications/completed", "[Application]"),
    (f"{PARTITION}/applications/rejected", "[Application]"),
    (f"{Q}/root.gangs/applications/active", "[Application]"),
    (f"{PARTITION}/usage/users", "[User]"),
    (f"{PARTITION}/usage/user/ann", "User"),
    (f"{PARTITION}/usage/groups", "[Group]"),
    (f"{PARTITION}/usage/group/dev", "Group"),
    ("/ws/v1/events/batch", "Events"),
    ("/ws/v1/scheduler/healthcheck", "Health"),
    ("/ws/v1/scheduler/node-utilizations", "[Utilizations]"),
    ("/debug/fullstatedump", "State"),
)
