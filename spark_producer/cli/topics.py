"""The command `pyproducer topics`, which lists, describes, creates and deletes topics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

from spark_producer.admin import BlockingClient
from spark_producer.admin.missing_topics import require_topics, suggest_topic_on_not_found
from spark_producer.admin.topics import (
    TopicPage,
    create_topic,
    delete_topic,
    describe_topic,
    list_topics,
    topic_config,
    wait_for_topic,
)
from spark_producer.cli.arg_types import positive
from spark_producer.cli.connection_args import add_connection, admin_client
from spark_producer.cli.console import is_interactive, print_error, print_line
from spark_producer.cli.json_output import add_json, print_json
from spark_producer.cli.progress import ProgressBar
from spark_producer.cli.renamed_args import add_old_name, warn_renamed
from spark_producer.common.escape import for_log
from spark_producer.config.profiles import SUFFIX
from spark_producer.errors import ConfigError

CLIENT_ID = "pyproducer-topics"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    topics = commands.add_parser(
        "topics",
        description="List, describe, create and delete topics.",
    )
    actions = topics.add_subparsers(title="actions", required=True)
    listing = _action(actions, "list", "list the topics that you may see", _list)
    listing.add_argument("--internal", action="store_true", help="list Kafka's internal topics too")
    add_json(listing, "a JSON object for each topic on a line")
    describing = _action(
        actions, "describe", "show the partitions, leaders, replicas, offsets and configs of a topic", _describe
    )
    describing.add_argument("topic", metavar="TOPIC")
    add_json(describing, "one JSON object")
    creating = _action(actions, "create", "create topics, and wait until they can be written to", _create)
    creating.add_argument("topics", nargs="+", metavar="TOPIC")
    creating.add_argument(
        "--partitions", type=positive, metavar="N", help="number of partitions (default: the cluster's)"
    )
    replicas = creating.add_argument(
        "--replication-factor", type=positive, metavar="N", help="replicas of each partition (default: the cluster's)"
    )
    add_old_name(creating, "--replicas", replicas)
    config = creating.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a topic config, such as retention.ms=-1; may be given several times",
    )
    add_old_name(creating, "--set", config)
    deleting = _action(actions, "delete", "delete topics and all their records", _delete)
    deleting.add_argument("topics", nargs="+", metavar="TOPIC")
    deleting.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    for changing in (creating, deleting):
        add_json(changing, "a JSON object for each topic on a line")
        changing.set_defaults(unfinished="requests that were sent may still take effect. See `pyproducer topics list`")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    purpose: str,
    run: Callable[[argparse.Namespace], int | None],
) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
    add_connection(action, old_name=name != "create")  # there `--config` is a topic config, as in kafka-topics.sh
    action.add_argument(
        "--timeout", type=positive, default=30, metavar="SECONDS", help="maximum wait (default: %(default)s)"
    )
    action.set_defaults(run=run)
    return action


def _list(chosen: argparse.Namespace) -> None:
    with admin_client(chosen, CLIENT_ID) as client:
        rows = list_topics(client, internal=chosen.internal)
    for row in rows:
        if chosen.json:
            print_json(row._asdict())
        else:
            lost = f", {row.without_leader} without a leader" if row.without_leader else ""
            print_line(
                f"{for_log(row.name)}  {_count(row.partitions, 'partition')}, {_count(row.replicas, 'replica')}{lost}"
            )


def _describe(chosen: argparse.Namespace) -> None:
    with admin_client(chosen, CLIENT_ID) as client, suggest_topic_on_not_found(client, chosen.topic):
        page = describe_topic(client, chosen.topic)
    if chosen.json:
        rows = [row._asdict() for row in page.rows]
        print_json({"name": page.name, "partitions": rows, "config": page.config})
    else:
        for line in _lines(page):
            print_line(line)


def _lines(page: TopicPage) -> list[str]:
    config = page.config
    settings = (
        "not visible to you" if config is None else ", ".join(_set(*entry) for entry in config.items()) or "nothing"
    )
    name = for_log(page.name)
    lines = [f"{name}: {_count(len(page.rows), 'partition')}; set for it: {settings}"]
    for row in page.rows:
        leader = "no leader" if row.leader < 0 else f"leader {row.leader}"
        offsets = "" if row.first is None or row.end is None else f"  offsets {row.first} to {row.end}"
        replicas, in_sync = (",".join(map(str, nodes)) for nodes in (row.replicas, row.in_sync))
        lines.append(f"  {row.partition}: {leader}  replicas {replicas}  in sync {in_sync}{offsets}")
    return lines


def _set(name: str, value: str) -> str:
    """Return a config of a topic as the broker reports it, escaped."""
    return f"{for_log(name)}={for_log(value)}"


def _create(chosen: argparse.Namespace) -> int:
    differ = 0
    _take_old_config(chosen)
    config = dict(map(_setting, chosen.config))
    bar = ProgressBar("creating", len(chosen.topics))
    with admin_client(chosen, CLIENT_ID) as client:
        for number, topic in enumerate(chosen.topics):
            bar(number)
            try:
                made = create_topic(client, topic, chosen.partitions or -1, chosen.replication_factor or -1, config)
                if made:
                    wait_for_topic(client, topic)
            finally:
                bar.end()
            others = [] if made else _differences(client, topic, chosen, config)
            differ += bool(others)
            if chosen.json:
                print_json({"name": topic, "created": made, "differences": others})
            elif made:
                print_line(f"{topic} is created")
            else:
                print_line(
                    f"{topic} exists already, and is unchanged" + (f": it has {'; '.join(others)}" if others else "")
                )
    return 1 if differ else 0


def _differences(
    client: BlockingClient, topic: str, chosen: argparse.Namespace, config: Mapping[str, str]
) -> list[str]:
    """Return the differences of an existing topic from the arguments. Configs that the user may not see are not compared."""
    if not (chosen.partitions or chosen.replication_factor or config):
        return []
    rows = describe_topic(client, topic).rows
    replicas = min((len(row.replicas) for row in rows), default=0)
    found = [
        f"{_count(has, thing)}, not {asked}"
        for has, thing, asked in (
            (len(rows), "partition", chosen.partitions),
            (replicas, "replica", chosen.replication_factor),
        )
        if asked is not None and asked != has
    ]
    current = topic_config(client, topic, list(config)) or {} if config else {}
    return found + [
        f"{_set(name, value)}, not {config[name]}" for name, value in current.items() if config[name] != value
    ]


def _take_old_config(chosen: argparse.Namespace) -> None:
    """Treat a file given by `--config` as one of `--command-config`, whose old name that is; `--config` has topic configs now."""
    for text in [each for each in chosen.config if "=" not in each and each.endswith(SUFFIX)]:
        warn_renamed("--config FILE", "--command-config")
        chosen.config.remove(text)
        chosen.command_config = chosen.command_config or text


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--config takes NAME=VALUE, such as retention.ms=-1, not {text!r}")
    return name, value


def _delete(chosen: argparse.Namespace) -> None:
    with admin_client(chosen, CLIENT_ID) as client:
        require_topics(client, chosen.topics)
    if chosen.json and not chosen.yes:
        raise ConfigError("nothing was deleted: with --json no question is asked. Give --yes")
    if not chosen.yes and not _agreed(chosen.topics):
        print_error("nothing was deleted")
        return
    with admin_client(chosen, CLIENT_ID) as client:
        for topic in chosen.topics:
            delete_topic(client, topic)
            if chosen.json:
                print_json({"name": topic, "deleted": True})
            else:
                print_line(f"{topic} is deleted")


def _agreed(topics: list[str]) -> bool:
    """Ask for confirmation on the terminal.

    Raises:
        ConfigError: there is no terminal.
    """
    if not is_interactive():
        raise ConfigError(
            "nothing was deleted: there is no terminal for the question. Give --yes to delete topics and all their records"
        )
    names = for_log(", ".join(topics), limit=None)
    print(f"delete {names} with all their records? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
