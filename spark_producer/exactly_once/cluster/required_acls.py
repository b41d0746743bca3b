"""The ACLs that exactly-once writes need, and the error for a missing one."""

from __future__ import annotations

import enum
import re

from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, broker_error
from spark_producer.exactly_once.names import task_prefix


class Right(enum.Enum):
    """A right: its purpose, the operations to grant, and the type of resource."""

    TRANSACTIONS = "to begin, end and describe its transactions", ("Write", "Describe"), "transactional-id"
    CONTROL_TOPIC = "to read and write its control record", ("Read", "Write", "Describe"), "topic"
    MAKE_CONTROL_TOPIC = "to create the control topic (or create it yourself)", ("Create",), "topic"
    WRITE_TOPIC = "to write rows", ("Write", "Describe"), "topic"
    READ_TOPIC = (
        "to see whether an older transaction hangs in a partition, which a commit would commit as well",
        ("Read",),
        "topic",
    )
    REPAIR = "to write transaction markers that were lost", ("Alter",), "cluster"


CODES = {
    "transactional-id": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "topic": Code.TOPIC_AUTHORIZATION_FAILED,
    "cluster": Code.CLUSTER_AUTHORIZATION_FAILED,
}


def missing_right(right: Right, sink: str, user: str, topic: str = "") -> BrokerError:
    """Return the error for a right that the sink lacks, with the command that grants it. `user` is like `user 'app'`."""
    purpose, operations, kind = right.value
    option, name = {
        "transactional-id": (
            f"--transactional-id {task_prefix(sink)} --resource-pattern-type prefixed",
            task_prefix(sink),
        ),
        "topic": (f"--topic {topic}", topic),
        "cluster": ("--cluster", "the cluster"),
    }[kind]
    named = re.fullmatch(r"user '(\w[\w.@-]*)'.*", user)
    options = " ".join([*(f"--operation {operation}" for operation in operations), option])
    command = f"kafka-acls.sh --bootstrap-server … --add --allow-principal User:{named[1] if named else '…'} {options}"
    names = " and ".join(operation.upper() for operation in operations)
    return broker_error(
        CODES[kind],
        f"exactlyOnceId {sink!r}: {names} on {kind.replace('-id', ' id')} {name!r} is missing, which it needs {purpose}",
        user=user,
        advice=f"grant it with `{command}`",
    )
