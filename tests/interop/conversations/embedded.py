"""The answers of the embedded broker that differ from Kafka's, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tests.interop.conversations.scene import Line


class Difference(NamedTuple):
    """Where (the version and the title of a scene), to which request, what Kafka answers, and what is answered instead.

    The first three are regular expressions; `theirs` need not be the whole answer, and `ours` takes the place of what it finds.
    """

    scene: str
    request: str
    theirs: str
    ours: str
    reason: str

    def seen_in(self, line: Line) -> bool:
        """Return whether the request and the answer of a line are meant."""
        return bool(re.fullmatch(self.request, line.request) and re.search(self.theirs, line.answer))


_EVERY_BATCH = "Kafka asks the coordinator once per transaction and partition, the embedded broker before every batch"

DIFFERENCES: Sequence[Difference] = (
    Difference(
        ".* (group-)?versions", "ApiVersions api=9", r"\d+-\d+", "1-9", "0 is of ZooKeeper's times, 10 has topic ids"
    ),
    Difference(
        ".* group-versions",
        "ApiVersions api=8",
        r"\d+-\d+",
        "2-9",
        "0 and 1 are of ZooKeeper's times, 10 has topic ids",
    ),
    Difference(".* versions", "ApiVersions api=24", "0-5", "0-3", "from 4 on it is spoken between brokers only"),
    Difference(".* versions", "ApiVersions api=27", r"\d+-\d+", "1-1", "what administrators speak of it is 1"),
    Difference("3.* versions", "ApiVersions api=66", "0-1", "0-2", "filters do no harm to older clients"),
    Difference("3.* group-versions", "ApiVersions api=15", "0-5", "0-6", "what is newer does no harm to older clients"),
    Difference(
        "3.* group-refused",
        "OffsetCommit .*generation=3.*",
        "ILLEGAL_GENERATION .22.",
        "GROUP_ID_NOT_FOUND (69)",
        "as Kafka 4",
    ),
    Difference(
        "3.* group-subscribed", "DescribeGroups", "Dead, ''", "Empty, 'consumer'", "as Kafka 4: it is kept for a while"
    ),
    Difference(
        "3.* group-fenced",
        "TxnOffsetCommit .*group=h generation=3.*",
        "UNKNOWN_MEMBER_ID .25.",
        "ILLEGAL_GENERATION (22)",
        "as Kafka 4",
    ),
    Difference(
        "4.* group-refused",
        "DescribeGroups group=never version=4",
        "Empty",
        "Dead",
        "as Kafka 3.9: without members and offsets it is forgotten at once",
    ),
    Difference(
        "3",
        "DescribeTransactions.*",
        "(Empty, P. epoch .), begun",
        r"\1, start -1",
        "as Kafka 4: a transaction that is not open has no start",
    ),
    Difference(
        "3.* future-epoch",
        "Produce producer=a.1.*",
        "NONE.*",
        "INVALID_PRODUCER_EPOCH (47)",
        "as Kafka 4: Kafka 3.9 writes an epoch that no producer has",
    ),
    Difference("3.* future-epoch", "DescribeProducers", "epoch 1", "epoch 0", "as Kafka 4"),
    Difference(
        "3.* future-epoch", "Fetch.*", "3 of 3(.*) / 1-1 .* / 2-2", r"2 of 2\1 / 1-1", "as Kafka 4: it was not written"
    ),
    Difference(".* strange", "Produce .* id=never", "NONE.*", "INVALID_PRODUCER_ID_MAPPING (49)", _EVERY_BATCH),
    Difference(".* strange", "Produce producer=stranger.*", "NONE.*", "INVALID_PRODUCER_ID_MAPPING (49)", _EVERY_BATCH),
    Difference(".* strange", "DescribeProducers", "seq 1", "seq 0", _EVERY_BATCH),
    Difference(".* strange", "Fetch.*", "4 of 4(.*) / 1-1 .* / 3-3", r"2 of 2\1 / 1-1", _EVERY_BATCH),
    Difference(".* offsets-strange", ".* id=never", "NONE", "INVALID_PRODUCER_ID_MAPPING (49)", _EVERY_BATCH),
    Difference("3.* offsets-strange", ".*producer=a.1 .*", "NONE", "INVALID_PRODUCER_EPOCH (47)", _EVERY_BATCH),
    Difference(".* offsets", "DescribeTransactions", r"\[__consumer_offsets\]", "[]", "offsets lie in no topic here"),
    Difference(
        ".* markers",
        "WriteTxnMarkers producer=a-1 .*",
        "UNKNOWN_SERVER_ERROR .-1.",
        "INVALID_PRODUCER_EPOCH (47)",
        "Kafka does not expect the epoch -1; it is older than 0",
    ),
    Difference(
        ".* markers",
        "DescribeTransactions",
        r"PrepareCommit(.*), \[1\]",
        r"CompleteCommit\1, []",
        "Kafka's coordinator never ends a transaction whose marker is refused, until it starts again; here the partition has a "
        "newer marker, and that is the end of it",
    ),
    Difference(
        ".* last-epoch",
        "InitProducerId producer=a3 .*",
        "UNKNOWN_SERVER_ERROR .-1.",
        "PRODUCER_FENCED (90)",
        "Kafka does not expect the last epoch but one",
    ),
    Difference(
        "4.* last-epoch",
        "Produce producer=b .*sequence=1.*",
        "INVALID_PRODUCER_EPOCH .47.",
        "INVALID_PRODUCER_ID_MAPPING (49)",
        "as Kafka 3.9: the coordinator is asked before the partition",
    ),
)


def expected(version: str, scene: str, lines: Sequence[Line]) -> list[Line]:
    """The lines of a Kafka in a scene, with the answers that the embedded broker gives instead."""
    return [_ours(f"{version} {scene}", line) for line in lines]


def _ours(scene: str, line: Line) -> Line:
    for found in DIFFERENCES:
        if re.match(found.scene, scene) and found.seen_in(line):
            line = line._replace(answer=re.sub(found.theirs, found.ours, line.answer))
    return line
