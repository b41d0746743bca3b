"""The requests of transactions, with the responses of Kafka 3.9 and 4.3 to the same requests."""

import pytest

from spark_producer.broker.context import Context
from spark_producer.common.error_codes import Code
from tests.unit.broker.coordinator.transaction_requests import (
    BATCH,
    EXPLICIT,
    IMPLICIT,
    MARKER,
    add,
    begin,
    committed,
    end,
    initialize,
    state,
    write,
)

TXN_VERSIONS = pytest.mark.parametrize("txn_version", [EXPLICIT, IMPLICIT], ids=["explicit", "implicit"])


def started(context: Context, transactional_id: str = "id") -> tuple[int, int]:
    """(producer id, epoch) of a new producer."""
    code, *producer = initialize(context, transactional_id)
    assert code == Code.NONE
    return producer[0], producer[1]


@TXN_VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_whole_transaction(context: Context, txn_version: int, commit: bool) -> None:
    me = started(context)
    begin(context, me, txn_version, ("t", 0), ("t", 1))
    assert committed(context) == (0, 0, 0)
    assert state(context).transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in state(context).topics] == [("t", (0, 1))]

    following = (me[0], me[1] + 1) if txn_version == IMPLICIT else me
    assert end(context, me, commit=commit, txn_version=txn_version) == (Code.NONE, *following)
    for partition in (("t", 0), ("t", 1)):
        assert committed(context, partition) == (BATCH + MARKER, 2, 0 if commit else 1)
    assert state(context).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert state(context).topics == ()


@TXN_VERSIONS
def test_a_repeated_end_is_answered_as_the_first(context: Context, txn_version: int) -> None:
    me = started(context)
    begin(context, me, txn_version, ("t", 0))
    first = end(context, me, txn_version=txn_version)
    assert first[0] == Code.NONE
    assert end(context, me, txn_version=txn_version) == first
    assert end(context, me, commit=False, txn_version=txn_version)[0] == Code.INVALID_TXN_STATE
    assert committed(context) == (BATCH + MARKER, 2, 0)


@TXN_VERSIONS
def test_a_new_producer_fences_the_old_one(context: Context, txn_version: int) -> None:
    me = started(context)
    begin(context, me, txn_version, ("t", 0))
    assert initialize(context) == (Code.CONCURRENT_TRANSACTIONS, -1, -1)
    assert initialize(context) == (Code.NONE, me[0], me[1] + 2)
    assert committed(context) == (BATCH + MARKER, 2, 1)
    for version in (9, 11, 12):
        assert write(context, me, sequence=1, version=version) == Code.INVALID_PRODUCER_EPOCH
        assert write(context, me, ("t", 2), version=version) == Code.INVALID_PRODUCER_EPOCH
    for version in (0, 1, 2, 3):
        code = Code.INVALID_PRODUCER_EPOCH if version < 2 else Code.PRODUCER_FENCED
        assert add(context, me, ("t", 0), version=version) == {("t", 0): code}
        assert end(context, me, version=version)[0] == code
    assert end(context, me, version=5)[0] == Code.PRODUCER_FENCED


def test_a_kept_producer_may_raise_its_epoch(context: Context) -> None:
    me = started(context)
    assert initialize(context, expected=me) == (Code.NONE, me[0], 1)
    assert initialize(context, expected=me) == (Code.NONE, me[0], 1)  # a repetition
    assert initialize(context) == (Code.NONE, me[0], 2)
    assert initialize(context, expected=me) == (Code.PRODUCER_FENCED, -1, -1)
    assert initialize(context, expected=me, version=3) == (Code.INVALID_PRODUCER_EPOCH, -1, -1)
    assert initialize(context, expected=(me[0] + 1, 2)) == (Code.PRODUCER_FENCED, -1, -1)


@pytest.mark.parametrize("expected", [(5, -1), (-1, 5)])
def test_half_a_producer_is_refused(context: Context, expected: tuple[int, int]) -> None:
    assert initialize(context, expected=expected) == (Code.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_have_bounds(context: Context, timeout_ms: int) -> None:
    assert initialize(context, timeout_ms=timeout_ms) == (Code.INVALID_TRANSACTION_TIMEOUT, -1, -1)


def test_ids_have_names(context: Context) -> None:
    assert initialize(context, "") == (Code.INVALID_REQUEST, -1, -1)
    assert end(context, (0, 0), transactional_id="")[0] == Code.INVALID_REQUEST
    assert add(context, (0, 0), ("t", 0), transactional_id="") == {("t", 0): Code.INVALID_REQUEST}


def test_an_unknown_id_has_no_producer(context: Context) -> None:
    me = started(context)
    wrong = (me[0] + 1, me[1])
    for producer, name in ((me, "unknown"), (wrong, "id")):
        assert end(context, producer, transactional_id=name)[0] == Code.INVALID_PRODUCER_ID_MAPPING
        assert add(context, producer, ("t", 0), transactional_id=name) == {("t", 0): Code.INVALID_PRODUCER_ID_MAPPING}
        for version in (9, 11, 12):
            code = write(context, producer, transactional_id=name, version=version)
            assert code == Code.INVALID_PRODUCER_ID_MAPPING
    assert state(context, "unknown").error_code == Code.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, Code.INVALID_TXN_STATE),
        (10, Code.INVALID_TXN_STATE),
        (11, Code.TRANSACTION_ABORTABLE),
        (12, Code.NONE),
    ],
)
def test_a_partition_is_added_before_it_is_written(context: Context, version: int, code: Code) -> None:
    me = started(context)
    assert write(context, me, version=version) == code
    assert add(context, me, ("t", 1)) == {("t", 1): Code.NONE}
    assert write(context, me, ("t", 1), version=version) == Code.NONE


def test_produce_12_after_an_end_of_the_old_transaction_version_begins_another_transaction(context: Context) -> None:
    me = started(context)
    begin(context, me, EXPLICIT, ("t", 0))
    assert end(context, me, txn_version=EXPLICIT)[0] == Code.NONE
    assert write(context, me, sequence=1, version=12) == Code.NONE
    assert state(context).transaction_state == "Ongoing"
    assert committed(context)[1] == 2


def test_all_partitions_are_added_or_none(context: Context) -> None:
    me = started(context)
    assert add(context, me, ("t", 0), ("t", 3), ("u", 0)) == {
        ("t", 0): Code.OPERATION_NOT_ATTEMPTED,
        ("t", 3): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert state(context).transaction_state == "Empty"


def test_a_batch_and_its_request_must_agree(context: Context) -> None:
    me = started(context)
    assert write(context, me, transactional_id=None) == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # Without the bit the rows are in no transaction, although the request names one: so do Kafka's brokers.
    assert write(context, me, transactional=False) == Code.NONE
    assert committed(context) == (BATCH, 1, 0)
    assert state(context).transaction_state == "Empty"


def test_an_abort_in_the_new_transaction_version_raises_the_epoch_even_of_nothing(context: Context) -> None:
    me = started(context)
    assert end(context, me)[0] == Code.INVALID_TXN_STATE
    assert end(context, me, txn_version=EXPLICIT)[0] == Code.INVALID_TXN_STATE
    assert end(context, me, commit=False, txn_version=EXPLICIT)[0] == Code.INVALID_TXN_STATE
    assert end(context, me, commit=False) == (Code.NONE, me[0], 1)
    assert end(context, me, commit=False) == (Code.NONE, me[0], 1)
    assert end(context, (me[0], 1), commit=False) == (Code.NONE, me[0], 2)
    assert write(context, me) == Code.INVALID_PRODUCER_EPOCH


def test_a_late_end_of_the_old_transaction_version_hits_the_next_transaction(context: Context) -> None:
    """KAFKA-17754: that is why every transaction needs an epoch of its own."""
    me = started(context)
    begin(context, me, EXPLICIT, ("t", 0))
    assert end(context, me, txn_version=EXPLICIT)[0] == Code.NONE
    begin_again = add(context, me, ("t", 0))
    assert begin_again == {("t", 0): Code.NONE}
    assert end(context, me, txn_version=EXPLICIT)[0] == Code.NONE
    assert state(context).transaction_state == "CompleteCommit"

    new = started(context)
    begin(context, new, IMPLICIT, ("t", 1))
    _, *following = end(context, new)
    assert write(context, (following[0], following[1]), ("t", 1)) == Code.NONE
    assert end(context, new)[0] == Code.PRODUCER_FENCED
    assert state(context).transaction_state == "Ongoing"
