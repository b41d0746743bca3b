"""`write_markers`: what is known is written, what is not is said, and nothing is written that was not shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_log import ControlLog
from spark_producer.exactly_once.repair import repair as mending
from spark_producer.exactly_once.repair.lost_markers import LostMarker, LostMarkers
from spark_producer.protocol import WRITE_TXN_MARKERS, messages
from tests.fakes.scripted_client import ScriptedClient

KNOWN = LostMarker(TopicPartition("rows", 0), 8, 3, 5, 50, False)
UNKNOWN = LostMarker(TopicPartition("rows", 1), 9, 1, 5, 7, None)


class Repair:
    """A person who was shown something, while something is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lost: LostMarker) -> None:
        self.client = ScriptedClient()
        self.client.leaders = {KNOWN.topic_partition: 1, UNKNOWN.topic_partition: 2}
        self.client.answers(WRITE_TXN_MARKERS, messages.WriteTxnMarkersResponse(()))
        self.cluster = CommandExecutor(cast("Any", self.client), "orders", "commits")
        self.cluster.transaction_version = TransactionVersion.IMPLICIT
        self.looked: list[Any] = []
        monkeypatch.setattr(CommandExecutor, "prepare", lambda _: None)
        monkeypatch.setattr(ControlLog, "read", lambda *_: None)

        def lost_ends(*given: Any) -> LostMarkers:
            self.looked.append(given[-1])
            return LostMarkers(lost, ())

        monkeypatch.setattr(mending, "find_lost_markers", lost_ends)

    def write(self, shown: Sequence[LostMarker]) -> None:
        mending.write_markers(self.cluster, shown, (TopicPartition("more", 0),))

    @property
    def written(self) -> list[tuple[int, int, bool]]:
        """The markers: producer, epoch, whether it commits."""
        bodies = self.client.bodies(WRITE_TXN_MARKERS)
        return [
            (one.producer_id, one.producer_epoch, one.transaction_result) for body in bodies for one in body.markers
        ]


def test_all_that_is_known_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    repair = Repair(monkeypatch, KNOWN)
    repair.write([KNOWN])
    assert repair.written == [(KNOWN.producer_id, KNOWN.epoch + 1, False)]
    assert repair.looked == [(("more", 0),)]


def test_what_is_not_known_may_be_seen_when_the_others_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    repair = Repair(monkeypatch, KNOWN, UNKNOWN)
    with pytest.raises(
        ExactlyOnceError, match=r"in rows-1 was not known before the other markers were written\. Run the command"
    ):
        repair.write([KNOWN, UNKNOWN])
    assert repair.written == [(KNOWN.producer_id, KNOWN.epoch + 1, False)]


def test_nothing_is_written_of_which_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    repair = Repair(monkeypatch, UNKNOWN)
    with pytest.raises(ExactlyOnceError, match="Nothing is written"):
        repair.write([UNKNOWN])
    assert repair.written == []


def test_nothing_is_written_that_was_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    repair = Repair(monkeypatch, KNOWN, UNKNOWN)
    with pytest.raises(ExactlyOnceError, match="are no longer those that were shown"):
        repair.write([KNOWN])
    assert repair.written == []
