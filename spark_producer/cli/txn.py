"""The command `pyproducer txn`, which shows and repairs the transactions of exactly-once writes."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Collection, Iterator

from spark_producer.cli.arg_types import positive
from spark_producer.cli.connection_args import add_connection, admin_client
from spark_producer.cli.console import is_interactive, print_line
from spark_producer.cli.json_output import add_json, print_json
from spark_producer.cli.renamed_args import add_old_name
from spark_producer.cli.txn_json import (
    Fields,
    description_fields,
    repaired_fields,
    resolved_fields,
    summary_fields,
    topic_fields,
)
from spark_producer.cli.txn_report import (
    MAX_IDS,
    age_of,
    assumed_outcomes,
    next_steps,
    no_batch,
    record_line,
    show,
    show_blocked,
    steps_for_others,
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
    "list": ("show all sinks with their last batches and open transactions", False),
    "describe": (
        "show one sink: its last batch, open transactions, and blocked readers; or the blocked readers of a topic",
        True,
    ),
    "resolve": ("complete the batch that a dead driver had decided, and abort a batch that it had not", True),
    "repair": ("write transaction markers into partitions that lack them (HUNG)", True),
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    txn = commands.add_parser(
        "txn",
        description="Show and repair the transactions of exactly-once writes (docs/exactly_once.md).",
    )
    actions = txn.add_subparsers(title="actions", required=True)
    for name, (purpose, takes_sink) in _ACTIONS.items():
        action = actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if takes_sink:
            optional = name == "describe"  # other producers than sinks can block the readers of a topic
            more = "; optional with --topic" if optional else ""
            action.add_argument(
                "sink", metavar="SINK", nargs="?" if optional else None, help=f"the exactlyOnceId of the sink{more}"
            )
        add_connection(action)
        action.add_argument(
            "--control-topic", default=CONTROL_TOPIC, metavar="TOPIC", help="its control topic (default: %(default)s)"
        )
        action.add_argument(
            "--timeout", type=positive, default=30, metavar="SECONDS", help="maximum wait (default: %(default)s)"
        )
        if name in ("describe", "repair"):
            action.add_argument(
                "--topic",
                action="append",
                default=[],
                metavar="TOPIC",
                help="look at all partitions of this topic too, not only at those of the last batch; may be given several times",
            )
        add_json(action, "a JSON object for each sink on a line" if name == "list" else "one JSON object")
        if name == "resolve":
            _add_resolve(action)
        if name == "repair":
            _add_assume(action)
        if name in ("resolve", "repair"):
            action.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        action.set_defaults(run=_RUNS[name])


def _add_resolve(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--accept-partial",
        action="store_true",
        help="accept the visible part of a PARTIAL batch as the whole; its other rows are given up",
    )
    mismatch = action.add_argument(
        "--accept-row-count-mismatch",
        action="store_true",
        help="accept the last batch as it was committed, whatever rows it has when it runs again",
    )
    add_old_name(action, "--accept-difference", mismatch)
    action.add_argument(
        "--rebind",
        action="store_true",
        help="bind the id to the query or job that writes next, whose batch numbers may start again; written rows stay",
    )
    action.add_argument(
        "--accept-no-record",
        action="store_true",
        help="the last control record of the sink is lost: continue from the one that the control topic has, or as a new "
        "sink if it has none; check first which rows readers see",
    )


def _add_assume(action: argparse.ArgumentParser) -> None:
    assume = action.add_argument(
        "--assume",
        choices=_ASSUMED,
        help="assume this outcome for transactions whose outcome is unknown; check what consumers see first",
    )
    add_old_name(action, "--unknown", assume)


def _list(chosen: argparse.Namespace) -> None:
    chosen.unfinished = NOT_CHANGED
    with admin_client(chosen, CLIENT_ID) as client:
        lines, missing = list_sinks(client, chosen.control_topic)
        for line in lines:
            if chosen.json:
                print_json(summary_fields(line))
                continue
            if line.record is None:
                text = no_batch(chosen) if missing is None else "its last batch is unknown"
            else:
                text = (
                    f"unreadable: {line.record}"
                    if isinstance(line.record, PyProducerError)
                    else record_line(line.record)
                )
                text += f"  {age_of(client.now_ms() - line.written_ms)} ago"
            print_line(f"{line.sink}  {text}  open: {len(line.open_ids)}")
            for each in line.open_ids[:MAX_IDS]:
                print_line(f"    {each}")
            if len(line.open_ids) > MAX_IDS:
                print_line(f"    and {len(line.open_ids) - MAX_IDS} more: pyproducer txn describe {line.sink}")
        if missing is not None:
            raise missing
        if not lines and not chosen.json:
            print_line(f"no sink has written to {chosen.control_topic}")


def _describe(chosen: argparse.Namespace) -> None:
    chosen.unfinished = NOT_CHANGED
    if chosen.sink is None and not chosen.topic:
        raise ConfigError(
            "there is no sink to describe. Give SINK, or --topic, or both; `pyproducer txn list` lists the sinks"
        )
    with admin_client(chosen, CLIENT_ID) as client:
        brokers = TransactionAdmin(client, chosen.sink or "*")
        more = partitions_of_topics(brokers, chosen.topic)
        if chosen.sink is None:
            blocked = find_blocked_readers(brokers, more, client.deadline())
            lines = [*steps_for_others("", blocked)]
            if chosen.json:
                print_json(topic_fields(blocked, lines))
                return
            if not blocked:
                print_line(f"no transaction blocks readers of {', '.join(sorted(chosen.topic))}")
            show_blocked("", blocked)
        else:
            found = _described(chosen, brokers, more)
            lines = [*next_steps(chosen, found), *steps_for_others(chosen.sink, found.blocked_readers)]
            if chosen.json:
                print_json(description_fields(chosen.sink, found, lines))
                return
            show(chosen, found, client.now_ms())
        for line in lines:
            print_line(f"next: {line}")


def _resolve(chosen: argparse.Namespace) -> None:
    chosen.unfinished = NOT_CHANGED
    _check_json(chosen)
    with admin_client(chosen, CLIENT_ID) as client:
        cluster = CommandExecutor(client, chosen.sink, chosen.control_topic)
        if chosen.accept_no_record:
            _accept_no_record(chosen, cluster)
            return
        found = _described(chosen, cluster.brokers)
        if not chosen.json:
            show(chosen, found, client.now_ms())
        record = found.log_state.record
        if chosen.accept_partial and (record is None or record.status is not Status.PARTIAL):
            raise ConfigError(f"the last batch of {chosen.sink!r} is not PARTIAL. Leave --accept-partial out")
        _report(chosen, f"open transactions: {len(found.open)}")
        _confirm(chosen, f"Take over {chosen.sink!r}? A query that writes to it now fails until it is restarted.")
        chosen.unfinished = "the sink may be taken over, and its batch not completed. Run the command again"
        if chosen.accept_partial:
            _report(chosen, f"accepted: {record_line(accept_partial(cluster))}")
        if chosen.rebind:
            text = f"{chosen.sink} will be bound to the query or job that writes next"
            record = rebind(cluster)
            _report(chosen, f"unbound: {text}", fields=resolved_fields(chosen.sink, record, [text]))
            return
        last = accept_difference(cluster) if chosen.accept_row_count_mismatch else resolve(cluster)
        changes = [*_changes(found, last, forgets_rows=chosen.accept_row_count_mismatch)]
        lines = [f"resolved: {no_batch(chosen) if last is None else record_line(last)}"]
        lines += [f"    {line}" for line in changes]
        _report(chosen, *lines, fields=resolved_fields(chosen.sink, last, changes))


def _accept_no_record(chosen: argparse.Namespace, cluster: CommandExecutor) -> None:
    topic = chosen.control_topic
    _confirm(
        chosen,
        f"Continue {chosen.sink!r} from the records that {topic} has? Rows that were written stay.",
    )
    record = accept_no_record(cluster)
    if record.query is None and record.last_done == NO_BATCH:
        text = f"{topic} has no record of {chosen.sink}; its next batch is written, whatever its number"
    else:
        text = f"the last record of {chosen.sink} in {topic} counts: {record_line(record)}"
    _report(chosen, f"accepted: {text}", fields=resolved_fields(chosen.sink, record, [text]))


def _repair(chosen: argparse.Namespace) -> None:
    chosen.unfinished = NOT_CHANGED
    _check_json(chosen)
    with admin_client(chosen, CLIENT_ID) as client:
        cluster = CommandExecutor(client, chosen.sink, chosen.control_topic)
        more = partitions_of_topics(cluster.brokers, chosen.topic)
        found = _described(chosen, cluster.brokers, more)
        if not chosen.json:
            show(chosen, found, client.now_ms())
        lost, unseen = found.lost_markers
        if unseen and not lost:
            raise missing_right(Right.READ_TOPIC, chosen.sink, client.user, unseen[0][0])
        if not lost:
            looked = f" and of {', '.join(sorted(chosen.topic))}" if chosen.topic else "; --topic looks at others"
            text = f"nothing to repair: no transaction marker is missing in the partitions of its last batch{looked}"
            _report(chosen, text, fields=repaired_fields(chosen.sink, ()))
            return
        assumed = _ASSUMED.get(chosen.assume)
        for line in assumed_outcomes(lost, assumed):
            _report(chosen, line)
        known = with_known_outcome(lost, assumed)
        if known:
            _confirm(
                chosen, f"Write {len(known)} markers into {format_partitions(each.topic_partition for each in known)}?"
            )
        chosen.unfinished = "some markers may be written, and others not. Run the command again"
        write_markers(cluster, lost, more, assumed=assumed)
        text = f"repaired. Finish with `pyproducer txn resolve {chosen.sink}`"
        _report(chosen, text, fields=repaired_fields(chosen.sink, known))


def _check_json(chosen: argparse.Namespace) -> None:
    """Refuse `--json` without `--yes`, because a script sees neither what was found nor the question.

    Raises:
        ConfigError: only `--json` is given.
    """
    if chosen.json and not chosen.yes:
        raise ConfigError("nothing was changed: with --json no question is asked. Give --yes")


def _report(chosen: argparse.Namespace, *lines: str, fields: Fields | None = None) -> None:
    """Print lines of text, or with `--json` the `fields`, if there are any."""
    if not chosen.json:
        for line in lines:
            print_line(line)
    elif fields is not None:
        print_json(fields)


def _described(
    chosen: argparse.Namespace, brokers: TransactionAdmin, more: Collection[TopicPartition] = ()
) -> SinkDescription:
    """Return the description of the sink. It covers the partitions of its last batch, and those in `more`.

    Raises:
        ConfigError: the control topic does not know it, so its name may be mistyped, or it is on another cluster.
    """
    found = describe_sink(brokers, chosen.control_topic, more)
    if (
        found.log_state.record is None
        and not found.open
        and not found.log_state.undecided
        and not found.lost_markers.markers
    ):
        names = known_sinks(brokers, chosen.control_topic)
        similar = difflib.get_close_matches(chosen.sink, names, 3) or names[:10]
        listed = f": {', '.join(similar)}{', …' if len(names) > len(similar) else ''}" if names else ""
        raise ConfigError(
            f"{chosen.control_topic} knows no sink {chosen.sink!r}. Check its name, --bootstrap-servers and --control-topic. "
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
    """Ask for confirmation on the terminal, unless `--yes` is given.

    Raises:
        ConfigError: the answer is no, or there is no terminal.
    """
    if chosen.yes:
        return
    if not is_interactive():
        raise ConfigError("nothing was changed: there is no terminal for the question. Give --yes to do it without")
    print(f"{for_log(question, limit=None)} [y/N] ", end="", file=sys.stderr, flush=True)  # stdout may go into a file
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise ConfigError(NOT_CHANGED)


def _changes(found: SinkDescription, last: ControlRecord | None, *, forgets_rows: bool) -> Iterator[str]:
    """Yield the changes to a sink that its `last` control record does not show; `found` is the sink before."""
    before = found.log_state.record
    unchanged = _identity(before) == _identity(last)
    if unchanged and not found.open:
        yield "nothing was left open"
    elif unchanged or (last is not None and last.status is Status.INTENT):
        yield "the transactions that were left open are aborted"
    if forgets_rows:
        yield _forgotten(before, last)


def _identity(record: ControlRecord | None) -> tuple[str, Status] | None:
    return None if record is None else (record.token, record.status)


def _forgotten(before: ControlRecord | None, last: ControlRecord | None) -> str:
    """Return the line about the row count of the last batch; `before` is the sink's record before the command."""
    if last is None or last.last_done == NO_BATCH:
        return "there is no batch whose row count could be forgotten"
    known = None
    if before is not None:
        known = before.done_rows if before.last_done == last.last_done else before.rows
    if known is None:
        return f"the row count of batch {last.last_done} was unknown before: nothing is forgotten"
    return f"forgotten: the row count of batch {last.last_done}, {known}"
