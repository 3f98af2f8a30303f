"""What users, groups, queues and settings may be called (contract sections 1.2, 1.8, 1.9, 2.11)."""

import re

ROOT = "root"
DEFAULT_PARTITION = "default"
NODE_PARTITION = "si/node-partition"  # a label of a node, and an attribute: whose it is
MAX_APPLICATION_ID_BYTES = 255  # it goes as a property of its messages, and AMQP's are no longer
FOREIGN_TAG = "foreign"  # on the allocation of a pod that another scheduler placed
FOREIGN_DEFAULT, FOREIGN_STATIC = "default", "static"
USER = re.compile(r"^[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?\Z")
GROUP = re.compile(r"^[_a-zA-Z][a-zA-Z0-9:_.-]*\Z")
ACL_USER = re.compile(r"^[_a-zA-Z][a-zA-Z0-9_.@-]*[$]?\Z")
ACL_GROUP = re.compile(r"^[_a-zA-Z][a-zA-Z0-9_-]*\Z")
QUEUE = re.compile(r"^[a-zA-Z0-9_:#/@-]{1,64}\Z")
QUEUE_ERROR = (
    "invalid queue name, max 64 characters consisting of alphanumeric characters and '-', '_', "
    "'#', '@', '/', ':' allowed"
)
EVENT_SETTING = "event."  # how the API's own settings begin: the core hands them on
POD_NAME_TAG = "kubernetes.io/meta/podName"
PARTITION = "muster.io/partition"  # a label, or annotation, of a pod: whose its application is
RUN_SECONDS = "muster.io/run-seconds"  # for how long a pod says that it runs; a tag, too
FAIR, BINPACKING = "fair", "binpacking"  # what a nodesortpolicy names: YuniKorn's
NODE_SCORES = (FAIR, BINPACKING)
GPU_BINPACKING, FGD = "gpu-binpacking", "fgd"  # and ours, where the setting nodeScores lets it
GPU_NODE_SCORES = (GPU_BINPACKING, FGD)
