"""What a queues.yaml may say and may not, in other numbers than YuniKorn's own cases have."""

import pytest

from services.core.configuration import parse_configuration
from services.core.scheduler.scheduler import ConfigurationError
from tests.table import each_row


def q(queues, **more):
    rest = "".join(f", {k}: {v}" for k, v in more.items())
    return f"partitions: [{{name: default, queues: [{{name: root, queues: [{queues}]}}]{rest}}}]"


def lim(u):
    return q("{name: a, limits: %s}" % u)


W = "invalid queue name, max 64 characters consisting of alphanumeric characters"
CASES = [  # the text, and what is wrong with it; None: it holds

(lim("[{users: ['*', u], maxapplications: 1}]"),"should not set no wildcard user u after wildcard user limit"),
(lim("[{users: ['*'], maxapplications: 1}, {users: [u], maxapplications: 1}]"),"should not set no wildcard user u after wildcard user limit"),
(lim("[{users: ['*'], maxapplications: 1}, {users: ['*'], maxapplications: 1}]"),"duplicated user name '*', already exists"),
(lim("[{users: [u, '*'], maxapplications: 1}]"),None),
(lim("[{groups: [g, '*', h], maxapplications: 1}]"),"should not set no wildcard group h after wildcard group limit"),
(lim("[{groups: [g], maxapplications: 1}, {groups: ['*'], maxapplications: 1}]"),None),
(lim("[{groups: ['*'], users: [u], maxapplications: 1}]"),"should not specify only one group limit that is using the wildcard. There must be at least one limit with a group name defined "),
(lim("[{groups: ['g g'], maxapplications: 1}]"),"invalid limit group name 'g g' in limit definition"),
(lim("[{users: ['a:b#c/d_e.f@g-h$'], maxapplications: 1}]"),None),
(lim("[{users: ['a$b'], maxapplications: 1}]"),"invalid limit user name 'a$b' in limit definition"),
(lim("[{users: [1u], maxapplications: 1}]"),"invalid limit user name '1u' in limit definition"),
(lim("[{groups: ['a/b'], maxapplications: 1}]"),"invalid limit group name 'a/b' in limit definition"),
(lim("[{users: [u], maxresources: {vcore: 0, memory: 0}}]"),"MaxResources should be greater than zero in '' limit"),
(lim("[{users: [u], maxresources: {vcore: 0, memory: 1}}]"),None),
(lim("[{users: [u], maxresources: {vcore: -1}}]"),"invalid quantity"),
(lim("[{limit: x, users: [u], maxresources: {}}]"),"invalid resource combination for limit x all resource limits are null"),
("partitions: [{name: default, queues: [{name: root, maxapplications: 3, limits: [{users: [u], maxapplications: 4}]}]}]","invalid MaxApplications settings for limit  exceed current the queue MaxApplications"),
(q("{name: a, resources: {max: {memory: 10}}, limits: [{users: [u], maxresources: {vcore: 100}}]}"),None),
(q("{name: a, resources: {max: {memory: 10}}, limits: [{users: [u], maxresources: {vcore: 100, memory: 11}}]}"),"invalid MaxResources settings for limit  exeecd current the queue MaxResources"),
(q("{name: p, resources: {max: {vcore: 4}}, queues: [{name: m, queues: [{name: l, resources: {max: {vcore: 5}}}]}]}"),"max resource of parent map[vcore:4000] is smaller than maximum resource map[vcore:5000] for queue l"),
(q("{name: p, resources: {max: {vcore: 4}}, queues: [{name: l, resources: {max: {memory: 5}}}]}"),None),
(q("{name: p, resources: {max: {vcore: 4}}, queues: [{name: l, resources: {guaranteed: {vcore: 3}}}, {name: k, resources: {guaranteed: {vcore: 2}}}]}"),"max resource map[vcore:4000] is smaller than sum of guaranteed resources map[vcore:5000] of the children for queue p"),
(q("{name: p, resources: {guaranteed: {vcore: 4}}, queues: [{name: m, queues: [{name: l, resources: {guaranteed: {vcore: 3}}}, {name: k, resources: {guaranteed: {vcore: 2}}}]}]}"),"guaranteed resource of parent map[vcore:4000] is smaller than sum of guaranteed resources map[vcore:5000] of the children for queue p"),
(q("{name: p, resources: {guaranteed: {vcore: 4}}, queues: [{name: l, resources: {guaranteed: {memory: 3}}}]}"),None),
(q("{name: a, resources: {guaranteed: {vcore: 4, memory: 2}, max: {vcore: 4, memory: 1}}}"),"guaranteed resource map[memory:2 vcore:4000] is larger than maximum resource map[memory:1 vcore:4000] for queue a"),
(q("{name: a, resources: {guaranteed: {vcore: 4}, max: {memory: 1}}}"),None),
(q("{name: p, resources: {max: {vcore: 4}}, queues: [{name: l, resources: {guaranteed: {vcore: 5}}}]}"),"max resource map[vcore:4000] is smaller than sum of guaranteed resources map[vcore:5000] of the children for queue p"),
(q("{name: a, resources: {max: {vcore: 9223372036854776}}}"),"overflow"),
(q("{name: a, resources: {max: {vcore: 7E}}}"),"overflow"),
(q("{name: a, resources: {max: {vcore: 2Ki}}}"),None),
(q("{name: a, resources: {max: {memory: 1K}}}"),"invalid suffix"),
(q("{name: a, resources: {max: {memory: 1ki}}}"),"invalid"),
(q("{name: a, resources: {max: {memory: '1 Ki'}}}"),None),
(q("{name: a, resources: {max: {vcore: 1.5}}}"),"invalid quantity"),
(q("{name: a, resources: {max: {memory: 1e3}}}"),"invalid quantity"),
(q("{name: a, resources: {max: {memory: ''}}}"),"invalid quantity"),
(q("{name: p, maxapplications: 5, queues: [{name: l}]}"),"maxApplications is either undefined or zero, which is not allowed when parent queue's maxApplications is defined"),
(q("{name: p, maxapplications: 5, queues: [{name: l, maxapplications: 5}, {name: k, maxapplications: 5}]}"),None),
(q("{name: p, queues: [{name: l, maxapplications: 5}]}"),None),
("partitions: [{name: default, queues: [{name: root, maxapplications: 5, queues: [{name: l}]}]}]","maxApplications is either undefined"),
(q("{name: %s}" % ("a"*64)),None),
(q("{name: %s}" % ("a"*65)),W),
(q("{name: 'a:b#c/d@e-f_G'}"),None),
(q("{name: 'a.b'}"),W),
(q("{name: ''}"),W),
(q("{name: p, queues: [{name: x}, {name: X}]}"),"duplicate child name found with name 'X', level 2"),
("partitions: [{name: default, queues: [{name: root}]}, {name: DEFAULT, queues: [{name: root}]}]","duplicate partition name found with name default"),
("partitions: [{name: '', queues: [{name: root}]}, {name: default, queues: [{name: root}]}]","duplicate partition name found with name default"),
("partitions: [{name: default, queues: [{name: root}]}, {name: Gpu, queues: [{name: root}]}, {name: gpu, queues: [{name: root}]}]","duplicate partition name found with name gpu"),
("partitions: [{name: default, queues: [{name: Root, resources: {max: {vcore: 1}}}]}]","root queue must not have resource limits set"),
("partitions: [{name: default, queues: [{name: root, resources: {max: {}}}]}]","root queue must not have resource limits set"),
("partitions: [{name: default, queues: [{name: 'a b'}]}]",W),
("partitions: [{name: default, queues: [], limits: []}]",None),
("partitions: [{name: default, limits: [{users: [u], maxapplications: 1}], queues: [{name: root, limits: [{users: [u], maxapplications: 2}]}]}]","partition limits and root queue limits are not equivalent"),
("partitions: [{name: default, limits: [{users: [u], maxapplications: 1}], queues: [{name: a}]}]",None),
(q("{name: a, submitacl: 'a  b'}"),None),
(q("{name: a, submitacl: 'a b c'}"),"multiple spaces found in ACL: 'a b c'"),
(q("{name: a, submitacl: '* *'}"),None),
(q("{name: a}",placementrules="[{name: 'a-b'}]"),"invalid rule name a-b, a name must be a valid identifier"),
(q("{name: a}",placementrules="[{name: fixed}]"),"a fixed queue rule must have a queue name set"),
(q("{name: a}",placementrules="[{name: tag}]"),"a tag queue rule must have a tag name set"),
(q("{name: a}",placementrules="[{name: recovery}]"),"recovery rule cannot be part of the config, failing placement rule config"),
(q("{name: a}",placementrules="[{name: Fixed, value: root.a, parent: {name: user}}]"),"cannot have a fixed queue rule with qualified queue getName and a parent rule: root.a"),
(q("{name: a}",placementrules="[{name: fixed, value: root.b}]"),"placement rule no. #0 (fixed) references non-existing queues (root.b) and create is 'false'"),
(q("{name: a}",placementrules="[{name: user}, {name: fixed, value: root.b, create: false}]"),"placement rule no. #1 (fixed) references non-existing queues (root.b) and create is 'false'"),
(q("{name: a}",placementrules="[{name: user, parent: {name: fixed, value: root.a}}]"),"placement rule no. #0 (fixed->user) references a queue (root.a) which is not a leaf"),
(q("{name: a}",placementrules="[{name: user, filter: {users: ['[a']}}]"),"invalid rule filter user list is not a proper list or regexp: [[a]"),
(q("{name: a}",placementrules="[{name: user, filter: {groups: ['a b']}}]"),"invalid rule filter group list is not a proper list or regexp: [a b]"),
(q("{name: a}",placementrules="[{name: user, filter: {users: [a, 'b*']}}]"),"invalid rule filter user list is not a proper list or regexp: [a b*]"),
(q("{name: a}",placementrules="[{name: user, filter: {type: Deny}}]"),None),
(q("{name: a}",nodesortpolicy="{type: Fair}"),"undefined policy: Fair"),
(q("{name: a}",nodesortpolicy="{type: binpacking, resourceweights: {vcore: -0.5}}"),"negative resource weight for vcore is not allowed"),
(q("{name: a}",usergroupresolver="{type: os}"),None),
(q("{name: a}",users="[]"),"field users not found in type configs.PartitionConfig"),
(q("{name: a}",statedumpfilepath="x"),"field statedumpfilepath not found in type configs.PartitionConfig"),
(q("{name: a, sortpolicy: x}"),"field sortpolicy not found in type configs.QueueConfig"),
(q("{name: p, limits: [{groups: [g], maxresources: {vcore: 2}}], queues: [{name: m, queues: [{name: l, limits: [{groups: [g], maxresources: {vcore: 3}}]}]}]}"),"group g max resource map[vcore:3000] of queue l is greater than immediate or ancestor parent maximum resource map[vcore:2000]"),
(q("{name: p, limits: [{users: ['*'], maxapplications: 2}], queues: [{name: l, limits: [{users: [u], maxapplications: 3}]}]}"),"user u max applications 3 of queue l is greater than wildcard max applications 2 of immediate or ancestor parent queue"),
(q("{name: p, limits: [{users: [u], maxapplications: 3}, {users: ['*'], maxapplications: 2}], queues: [{name: l, limits: [{users: [u], maxapplications: 3}]}]}"),None),
(q("{name: p, limits: [{users: [u], maxresources: {vcore: 2}}], queues: [{name: l, limits: [{users: [u], maxresources: {memory: 3}}]}]}"),None),
]  # fmt: skip


@each_row(("text", "message"), CASES)
def test_what_a_file_may_say(text, message):
    if message is None:
        parse_configuration(text)
        return
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text)
    assert message in str(caught.value)
