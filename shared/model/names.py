"""Valid names of users, groups, queues and settings, and the names of labels and annotations.

Source: docs/rules/queues.md and docs/rules/configuration.md#service-keys.
"""

import re

ROOT = "root"
DEFAULT_PARTITION = "default"
NODE_PARTITION = "si/node-partition"  # a label of a node, and an attribute: whose it is
MAX_APPLICATION_ID_BYTES = 255  # it goes as a property of its messages, and AMQP's are no longer
FOREIGN_TAG = "foreign"  # on the allocation of a pod that another scheduler placed
NOMINATED_TAG = "muster.io/nominated"  # on one that is not there yet, and others make way for it
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
# An application's ID is judged as Kubernetes judges a label's value, the name of a pod (and of what
# pods are made of) as a DNS-1123 subdomain, a namespace as a DNS-1123 label.
LABEL_VALUE = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
LABEL_VALUE_ERROR = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL = re.compile(rf"^{_DNS_LABEL}\Z")
MAX_DNS_LABEL = 63  # characters of a namespace; refused where it is submitted
DNS_LABEL_ERROR = (
    "must consist of at most 63 lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character"
)
NOT_ASKABLE = "must be printable, and neither '.' nor '..'"
DNS_SUBDOMAIN = re.compile(rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*\Z")
MAX_DNS_SUBDOMAIN = 253  # characters of a pod's or document's name; refused where it is submitted
DNS_SUBDOMAIN_ERROR = (
    "must consist of at most 253 lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)
EVENT_SETTING = "event."  # how the API's own settings begin: the core hands them on
POD_NAME_TAG = "kubernetes.io/meta/podName"
FORCE_TAG = "application.create.force"  # of an application that has pods on nodes: it is accepted
NODE_ANNOTATIONS = "muster.io/"  # annotations of nodes that begin so are attributes of theirs
PARTITION = "muster.io/partition"  # a label, or annotation, of a pod: whose its application is
RUN_SECONDS = "muster.io/run-seconds"  # for how long a pod says that it runs; a tag, too
CHECKPOINT_SECONDS = "muster.io/checkpoint-seconds"  # how often a pod has one; a tag, too
RESTART_SECONDS = "muster.io/restart-seconds"  # what starting over costs a pod; a tag, too
JOB = "muster.io/job"  # the job that an application is of, the same where it comes again; a tag
GRACE_SECONDS = "muster.io/termination-grace-seconds"  # how long a pod may take to end; a tag
FAIR, BINPACKING = "fair", "binpacking"  # what a nodesortpolicy names: YuniKorn's
NODE_SCORES = (FAIR, BINPACKING)
GPU_BINPACKING, FGD = "gpu-binpacking", "fgd"  # and ours
AS_KAI = "kai"  # KAI's packing, which is the default under its policy
OWN_NODE_SCORES = (GPU_BINPACKING, FGD, AS_KAI)


def is_dns_label(name: str) -> bool:
    """Whether a text is a valid namespace name."""
    return len(name) <= MAX_DNS_LABEL and DNS_LABEL.match(name) is not None


def is_dns_subdomain(name: str) -> bool:
    """Whether a text is a valid pod name."""
    return len(name) <= MAX_DNS_SUBDOMAIN and DNS_SUBDOMAIN.match(name) is not None


def is_askable(name: str) -> bool:
    """Whether an object of this name can be requested: in a URL path, and on a command line.

    ``.`` and ``..`` have their own meaning in a path. Unprintable characters (line breaks, escape
    characters) cannot be in an argument or a line of output. All other characters can be escaped.
    """
    return bool(name) and name not in {".", ".."} and name.isprintable()
