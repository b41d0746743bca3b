"""The output of `pyproducer txn` about a sink: its last batch, its open transactions, blocked readers, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from spark_producer.cli.console import print_error, print_line
from spark_producer.common.escape import for_log
from spark_producer.exactly_once.cluster.broker_requests import format_partitions
from spark_producer.exactly_once.names import sink_of
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, UNFINISHED, ControlRecord, Status
from spark_producer.exactly_once.repair.describe import BlockedReaders, OpenTransaction, SinkDescription
from spark_producer.exactly_once.repair.lost_markers import LostMarker

MAX_IDS = 10
"""Maximum open transactions of each sink that the list names."""


def assumed_outcomes(lost: Sequence[LostMarker], assumed: bool | None) -> Iterator[str]:
    """Yield a line for each transaction whose unknown outcome is decided by `--assume`."""
    for each in lost:
        if each.commit is None and assumed is not None:
            yield (
                f"--assume {'committed' if assumed else 'aborted'}: {format_partitions([each.topic_partition])}, rows from "
                f"offset {each.first_offset} on of producer {each.producer_id}, epoch {each.epoch}"
            )


def show(chosen: argparse.Namespace, found: SinkDescription, now_ms: int) -> None:
    """Print the description of a sink."""
    record, sink = found.log_state.record, chosen.sink
    if record is None:
        print_line(f"{sink}: {no_batch(chosen)}")
    else:
        print_line(f"{sink}: {record_line(record)}, {age_of(now_ms - found.written_ms)} ago")
        print_line(f"    query {record.query or '(batch writes)'}, token {record.token}")
        still_open = {each.transactional_id for each in found.open}
        for number, one in enumerate(record.transactions):
            outcome = f": {found.outcomes[number].value}" if found.outcomes else ""
            if record.status is Status.INTENT:
                outcome = (
                    ": left open, to be aborted"
                    if one.transactional_id in still_open
                    else ": was left open, ended since"
                )
            print_line(f"    {for_log(one.transactional_id)}  producer {one.producer_id}, epoch {one.epoch}{outcome}")
            for span in one.spans:
                rows = f"{span.records} rows at offsets {span.first_offset} to {span.last_offset}"
                print_line(f"        {span.topic}-{span.partition}: {rows}")
    for each in found.open:
        print_line(f"open: {how_long(each)}")
        print_line(f"    in {format_partitions(each.partitions) or 'no partition that this user may see'}")
    show_blocked(sink, found.blocked_readers)
    for lost in found.lost_markers.markers:
        outcome = {True: "which was committed", False: "which was aborted", None: "whose outcome is unknown"}[
            lost.commit
        ]
        print_line(
            f"lost: {format_partitions([lost.topic_partition])} lacks the marker of producer {lost.producer_id}'s transaction, "
            f"{outcome}"
        )
    for topic in sorted({topic for topic, _ in found.lost_markers.unseen}):
        print_error(f"missing markers in topic {topic} cannot be found: READ on the topic is missing. Grant it")


def show_blocked(sink: str, partitions: Sequence[BlockedReaders]) -> None:
    """Print the offsets at which transactions block readers. Open transactions of `sink` itself are printed by `show`."""
    for blocked in partitions:
        print_line(
            f"readers of {format_partitions([blocked.topic_partition])} are blocked at offset {blocked.last_stable_offset}; "
            f"the log ends at {blocked.end_offset}"
        )
        if blocked.producers is None:
            topic = blocked.topic_partition[0]
            print_error(f"the transaction that blocks them is unknown: READ on topic {topic} is missing. Grant it")
        for producer_id, epoch, first, transaction in blocked.producers or ():
            print_line(f"    producer {producer_id}, epoch {epoch}, has a transaction open since offset {first}")
            if transaction is not None and sink_of(transaction.transactional_id) != sink:
                print_line(f"        {how_long(transaction)}")


def next_steps(chosen: argparse.Namespace, found: SinkDescription) -> Iterator[str]:
    """Yield the next steps for a sink, if there are any."""
    sink, record = chosen.sink, found.log_state.record
    status = None if record is None else record.status
    if found.lost_markers.markers:
        topics = "".join(f" --topic {each}" for each in chosen.topic)
        yield f"stop the query, then: pyproducer txn repair {sink}{topics}"
        yield f"then start the query again, or: pyproducer txn resolve {sink}"
    elif status is Status.PARTIAL:
        yield "write the rows that were aborted, as docs/exactly_once_explained.md says, or give them up"
        yield f"continue with the next batch: pyproducer txn resolve {sink} --accept-partial"
    elif status is Status.VOID:
        yield "nothing of this batch is visible: run it again; a query does when it is restarted"
    elif status in UNFINISHED or found.open:
        only = f" (only if its control topic is {chosen.control_topic})" if record is None else ""
        yield f"if its query is not running, restart it, or: pyproducer txn resolve {sink}{only}"


def steps_for_others(sink: str, partitions: Sequence[BlockedReaders]) -> Iterator[str]:
    """Yield the next steps for transactions that block readers and are not those of `sink`."""
    holders = [each.transaction for blocked in partitions for each in blocked.producers or ()]
    found = {each.transactional_id: each for each in holders if each is not None}
    for other in sorted({sink_of(each) or "" for each in found} - {sink, ""}):
        yield f"readers wait for the sink {other}: pyproducer txn describe {other}"
    for name in sorted(each for each in found if sink_of(each) is None)[:MAX_IDS]:
        age = age_of(found[name].timeout_ms)
        yield (
            f"{for_log(name)} is not an id of pyproducer: its program must end the transaction, or brokers abort it "
            f"after {age}"
        )


def how_long(one: OpenTransaction) -> str:
    """Return how long a transaction has been open, and its timeout."""
    return (
        f"{for_log(one.transactional_id)}  {for_log(one.state)} for {age_of(one.open_ms)} of {age_of(one.timeout_ms)}"
    )


def no_batch(chosen: argparse.Namespace) -> str:
    """Return the line for a sink without a control record; one that writes with another control topic has none here either."""
    return f"no batch was committed yet ({chosen.control_topic} has none)"


def record_line(record: ControlRecord) -> str:
    """Return the last control record of a sink as text."""
    batch = f"batch {record.batch}"
    if record.batch == NO_BATCH:
        batch = "a write without txnVersion" if record.query == "" else "before any batch"
    done = "none" if record.last_done == NO_BATCH else str(record.last_done)
    return f"{record.status.value}, {batch}, last done: {done}"


def age_of(ms: int) -> str:
    """Return a duration in its largest unit of at least two."""
    seconds = max(0, ms) / 1000
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
