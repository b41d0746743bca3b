"""What a user must be allowed to do for exactly-once writes, and the message about a right that is missing."""

from __future__ import annotations

import enum
import re

from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, broker_error
from spark_producer.exactly_once.names import task_prefix


class Right(enum.Enum):
    """A right: what it is for, the operations to grant, and the option of `kafka-acls.sh` that names the resource."""

    TRANSACTIONS = "to begin, end and look at its transactions", ("Write", "Describe"), "transactional-id"
    CONTROL_TOPIC = "to keep its control record", ("Read", "Write", "Describe"), "topic"
    MAKE_CONTROL_TOPIC = "to make the topic of control records (or make it yourself)", ("Create",), "topic"
    WRITE_TOPIC = "to write rows", ("Write", "Describe"), "topic"
    READ_TOPIC = (
        "to see whether a partition has lost the end of an older transaction, which would be decided together with this one",
        ("Read",),
        "topic",
    )
    REPAIR = "to write the end of a transaction that was lost", ("Alter",), "cluster"


CODES = {
    "transactional-id": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "topic": Code.TOPIC_AUTHORIZATION_FAILED,
    "cluster": Code.CLUSTER_AUTHORIZATION_FAILED,
}


def missing_right(right: Right, sink: str, user: str, topic: str = "") -> BrokerError:
    """Return the error that says which right the sink lacks, with the command that grants it. `user`: "user 'app'"."""
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
    wanted = " ".join(f"--operation {operation}" for operation in operations)
    command = f"kafka-acls.sh --bootstrap-server … --add --allow-principal User:{named[1] if named else '…'} {wanted} {option}"
    spoken = " and ".join(operation.upper() for operation in operations)
    return broker_error(
        CODES[kind],
        f"exactlyOnceId {sink!r}: {spoken} on {kind.replace('-id', ' id')} {name!r} is missing, which it needs {purpose}",
        user=user,
        advice=f"grant it with `{command}`",
    )
