"""The command `pyproducer txn`, which shows the transactions of exactly-once writes and mends what can be mended."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from spark_producer.admin import BlockingClient
from spark_producer.cli.arg_types import positive
from spark_producer.cli.connection_args import add_connection, connection_options, settings_of
from spark_producer.cli.console import is_interactive, print_line
from spark_producer.cli.progress import WaitNotice
from spark_producer.cli.renamed_args import add_old_name
from spark_producer.cli.txn_report import (
    MAX_IDS,
    age_of,
    assumed_outcomes,
    next_steps,
    no_batch,
    other_holders,
    record_line,
    show,
    show_held,
)
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import for_log
from spark_producer.errors import ConfigError, PyProducerError
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin, format_partitions
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.exactly_once.driver import CONTROL_TOPIC
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status
from spark_producer.exactly_once.repair.describe import (
    SinkDescription,
    describe_sink,
    find_blocked_readers,
    known_sinks,
    list_sinks,
    partitions_of_topics,
)
from spark_producer.exactly_once.repair.repair import (
    accept_difference,
    accept_no_record,
    accept_partial,
    rebind,
    resolve,
    with_known_outcome,
    write_markers,
)

CLIENT_ID = "pyproducer-txn"

NOT_CHANGED = "nothing was changed"

_ASSUMED = {"committed": True, "aborted": False}
_ACTIONS = {
    "list": ("show all sinks, what they have written last, and how many transactions are open", False),
    "describe": (
        "show all about one sink: its open transactions, and what holds readers back; or who holds those of a topic",
        True,
    ),
    "resolve": ("finish what a dead driver had decided, and abort what it had not", True),
    "repair": ("write the end of transactions into partitions that have lost it (HUNG)", True),
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    txn = commands.add_parser(
        "txn",
        description="Show the transactions of exactly-once writes, and mend what can be mended (docs/exactly_once.md).",
    )
    actions = txn.add_subparsers(title="actions", required=True)
    for name, (told, of_one) in _ACTIONS.items():
        action = actions.add_parser(name, help=told, description=f"{told[0].upper()}{told[1:]}.")
        if of_one:
            alone = name == "describe"  # whoever holds the readers of a topic need not be a sink
            more = "; may be left out if --topic is given" if alone else ""
            action.add_argument("sink", metavar="SINK", nargs="?" if alone else None, help=f"its exactlyOnceId{more}")
        add_connection(action)
        action.add_argument("--control-topic", default=CONTROL_TOPIC, metavar="TOPIC", help="(default: %(default)s)")
        action.add_argument("--timeout", type=positive, default=30, metavar="SECONDS", help="(default: %(default)s)")
        if name in ("describe", "repair"):
            action.add_argument(
                "--topic",
                action="append",
                default=[],
                help="look at all partitions of this topic, too, and not only at those of the last batch; may be given again",
            )
        if name == "resolve":
            action.add_argument(
                "--accept-partial",
                action="store_true",
                help="take what is visible of a PARTIAL batch for the whole of it: its other rows are given up",
            )
            mismatch = action.add_argument(
                "--accept-row-count-mismatch",
                action="store_true",
                help="count the last batch as complete as it was committed, whatever rows it has when it runs again",
            )
            add_old_name(action, "--accept-difference", mismatch)
            action.add_argument(
                "--rebind",
                action="store_true",
                help="bind the id to the query or job that writes next, whose batch numbers start again; written rows stay",
            )
            action.add_argument(
                "--accept-no-record",
                action="store_true",
                help="treat the sink as one that has written nothing since the record that the control topic has, or nothing at "
                "all, because its last control record is lost; check first which rows readers see",
            )
        if name == "repair":
            assume = action.add_argument(
                "--assume",
                choices=_ASSUMED,
                help="assume this outcome for transactions whose outcome is unknown; check what consumers see first",
            )
            add_old_name(action, "--unknown", assume)
        if name in ("resolve", "repair"):
            action.add_argument("--yes", action="store_true", help="do not ask")
        action.set_defaults(run=_RUNS[name])


@contextmanager
def _connected(chosen: argparse.Namespace) -> Iterator[BlockingClient]:
    settings = settings_of({"kafka.client.id": CLIENT_ID} | connection_options(chosen))
    client = BlockingClient(settings, timeout=chosen.timeout, on_wait=WaitNotice(chosen.timeout))
    try:
        yield client
    finally:
        client.close()


def _list(chosen: argparse.Namespace) -> None:
    chosen.unfinished = NOT_CHANGED
    with _connected(chosen) as client:
        lines, missing = list_sinks(client, chosen.control_topic)
        for line in lines:
            if line.record is None:
                said = no_batch(chosen) if missing is None else "what it has written is not known"
            else:
                said = (
                    f"unreadable: {line.record}"
                    if isinstance(line.record, PyProducerError)
                    else record_line(line.record)
                )
                said += f"  {age_of(client.now_ms() - line.written_ms)} ago"
            print_line(f"{line.sink}  {said}  open: {len(line.open_ids)}")
            for each in line.open_ids[:MAX_IDS]:
                print_line(f"    {each}")
            if len(line.open_ids) > MAX_IDS:
                print_line(f"    and {len(line.open_ids) - MAX_IDS} more: pyproducer txn describe {line.sink}")
        if missing is not None:
            raise missing
        if not lines:
            print_line(f"no sink has written to {chosen.control_topic}")


def _describe(chosen: argparse.Namespace) -> None:
    chosen.unfinished = NOT_CHANGED
    if chosen.sink is None and not chosen.topic:
        raise ConfigError("give the name of a sink, or --topic, or both: pyproducer txn list names the sinks")
    with _connected(chosen) as client:
        brokers = TransactionAdmin(client, chosen.sink or "*")
        more = partitions_of_topics(brokers, chosen.topic)
        if chosen.sink is None:
            held = find_blocked_readers(brokers, more, client.deadline())
            if not held:
                print_line(f"nothing holds readers of {', '.join(sorted(chosen.topic))} back")
            show_held("", held)
            lines = [*other_holders("", held)]
        else:
            found = _surveyed(chosen, brokers, more)
            show(chosen, found, client.now_ms())
            lines = [*next_steps(chosen, found), *other_holders(chosen.sink, found.blocked_readers)]
        for line in lines:
            print_line(f"next: {line}")


def _resolve(chosen: argparse.Namespace) -> None:
    chosen.unfinished = NOT_CHANGED
    with _connected(chosen) as client:
        cluster = CommandExecutor(client, chosen.sink, chosen.control_topic)
        if chosen.accept_no_record:
            _accept_no_record(chosen, cluster)
            return
        found = _surveyed(chosen, cluster.brokers)
        show(chosen, found, client.now_ms())
        record = found.log_state.record
        if chosen.accept_partial and (record is None or record.status is not Status.PARTIAL):
            raise ConfigError(f"the last batch of {chosen.sink!r} is not PARTIAL: leave --accept-partial out")
        print_line(f"open transactions: {len(found.open)}")
        _confirm(chosen, f"Take over {chosen.sink!r}? A query that writes to it now fails, until it is started again.")
        chosen.unfinished = "the sink may be taken over, and not all of it finished: run the command again"
        if chosen.accept_partial:
            print_line(f"accepted: {record_line(accept_partial(cluster))}")
        if chosen.rebind:
            rebind(cluster)
            print_line(f"unbound: {chosen.sink} will be bound to the query or job that writes next")
            return
        last = accept_difference(cluster) if chosen.accept_row_count_mismatch else resolve(cluster)
        print_line(f"resolved: {no_batch(chosen) if last is None else record_line(last)}")
        for line in _done(found, last, difference=chosen.accept_row_count_mismatch):
            print_line(f"    {line}")


def _accept_no_record(chosen: argparse.Namespace, cluster: CommandExecutor) -> None:
    topic = chosen.control_topic
    _confirm(
        chosen,
        f"Treat {chosen.sink!r} as a sink that has written nothing but what {topic} says? Rows that were written stay.",
    )
    record = accept_no_record(cluster)
    if record.query is None and record.last_done == NO_BATCH:
        print_line(f"accepted: {topic} has no record of {chosen.sink}; its next batch is written, whatever its number")
    else:
        print_line(f"accepted: what {topic} has is taken for the last record of {chosen.sink}: {record_line(record)}")


def _repair(chosen: argparse.Namespace) -> None:
    chosen.unfinished = NOT_CHANGED
    with _connected(chosen) as client:
        cluster = CommandExecutor(client, chosen.sink, chosen.control_topic)
        more = partitions_of_topics(cluster.brokers, chosen.topic)
        found = _surveyed(chosen, cluster.brokers, more)
        show(chosen, found, client.now_ms())
        lost, unseen = found.lost_markers
        if unseen and not lost:
            raise missing_right(Right.READ_TOPIC, chosen.sink, client.user, unseen[0][0])
        if not lost:
            looked = f" and of {', '.join(sorted(chosen.topic))}" if chosen.topic else "; --topic looks at others"
            print_line(
                f"nothing to repair: no end of a transaction is lost in the partitions of its last batch{looked}"
            )
            return
        assumed = _ASSUMED.get(chosen.assume)
        for line in assumed_outcomes(lost, assumed):
            print_line(line)
        known = with_known_outcome(lost, assumed)
        if known:
            _confirm(
                chosen, f"Write {len(known)} markers into {format_partitions(each.topic_partition for each in known)}?"
            )
        chosen.unfinished = "some markers may be written, and others not: run the command again"
        write_markers(cluster, lost, more, assumed=assumed)
        print_line(f"repaired; finish with: pyproducer txn resolve {chosen.sink}")


def _surveyed(
    chosen: argparse.Namespace, brokers: TransactionAdmin, more: Collection[TopicPartition] = ()
) -> SinkDescription:
    """Look at the sink, and at `more` partitions than its last batch has.

    Raises:
        ConfigError: nothing is known of it, so its name may be mistyped, or it is on another cluster.
    """
    found = describe_sink(brokers, chosen.control_topic, more)
    if (
        found.log_state.record is None
        and not found.open
        and not found.log_state.undecided
        and not found.lost_markers.markers
    ):
        names = known_sinks(brokers, chosen.control_topic)
        near = difflib.get_close_matches(chosen.sink, names, 3) or names[:10]
        listed = f": {', '.join(near)}{', …' if len(names) > len(near) else ''}" if names else ""
        raise ConfigError(
            f"{chosen.control_topic} knows no sink {chosen.sink!r}: check its name, --bootstrap-servers and --control-topic. "
            f"It knows {len(names)} sink{'s' * (len(names) != 1)}{listed}"
        )
    return found


_RUNS: dict[str, Callable[[argparse.Namespace], None]] = {
    "list": _list,
    "describe": _describe,
    "resolve": _resolve,
    "repair": _repair,
}


def _confirm(chosen: argparse.Namespace, question: str) -> None:
    """Ask on the terminal, unless `--yes` is given.

    Raises:
        ConfigError: the answer is no, or there is no terminal to ask on.
    """
    if chosen.yes:
        return
    if not is_interactive():
        raise ConfigError("nothing was changed: there is no terminal to ask on. To do it without a question give --yes")
    print(f"{for_log(question, limit=None)} [y/N] ", end="", file=sys.stderr, flush=True)  # stdout may go into a file
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise ConfigError(NOT_CHANGED)


def _done(found: SinkDescription, last: ControlRecord | None, *, difference: bool) -> Iterator[str]:
    """What was done to a sink that was `found` so, if its last word does not say it."""
    before = found.log_state.record
    unchanged = _said(before) == _said(last)
    if unchanged and not found.open:
        yield "nothing was left open"
    elif unchanged or (last is not None and last.status is Status.INTENT):
        yield "the transactions that were left open are aborted"
    if difference:
        yield _forgotten(before, last)


def _said(record: ControlRecord | None) -> tuple[str, Status] | None:
    return None if record is None else (record.token, record.status)


def _forgotten(before: ControlRecord | None, last: ControlRecord | None) -> str:
    """What became of the number of rows that the last batch had by `before`, or by what was decided there and is done now."""
    if last is None or last.last_done == NO_BATCH:
        return "there is no batch whose number of rows could be forgotten"
    known = None
    if before is not None:
        known = before.done_rows if before.last_done == last.last_done else before.rows
    if known is None:
        return f"how many rows batch {last.last_done} had was not known before: nothing is forgotten"
    return f"forgotten: that batch {last.last_done} had {known} rows"
