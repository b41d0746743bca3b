"""The command `pyproducer check`, which looks whether everything is there that a write needs."""

from __future__ import annotations

import argparse

from spark_producer.admin.checks import Finding, as_json, check_cluster, failed
from spark_producer.cli.arg_types import positive
from spark_producer.cli.connection_args import add_connection, connection_options, settings_of
from spark_producer.cli.progress import WaitNotice
from spark_producer.common.escape import for_log

CLIENT_ID = "pyproducer-check"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    check = commands.add_parser(
        "check",
        description="Look at the connection, TLS, the login, versions, and with --topic at the topic, its leaders, "
        "min.insync.replicas and your rights; say what to do about each problem. Nothing is written or created. The exit code "
        "is 1 if anything has failed, and else 0. A topic that does not exist has failed, also where brokers create topics.",
    )
    add_connection(check)
    check.add_argument("--topic", metavar="TOPIC", help="the topic that is to be written to")
    check.add_argument(
        "--timeout", type=positive, default=10, metavar="SECONDS", help="for each question (default: %(default)s)"
    )
    check.add_argument("--json", action="store_true", help="one JSON object: ok, and a list of findings")
    check.set_defaults(run=_run, unfinished="the check is not done")


def _run(chosen: argparse.Namespace) -> int:
    settings = settings_of({"kafka.client.id": CLIENT_ID} | connection_options(chosen))
    findings = []
    for finding in check_cluster(settings, chosen.topic, timeout=chosen.timeout, on_wait=WaitNotice(chosen.timeout)):
        findings.append(finding)
        if not chosen.json:
            print(line(finding), flush=True)
    if chosen.json:
        print(as_json(findings))
    return int(failed(findings))


def line(finding: Finding) -> str:
    """Return a finding as text; its advice is a line of its own."""
    told = f"{finding.state:<8} {for_log(finding.name)}: {for_log(finding.text, limit=None)}"
    return f"{told}\n         what to do: {for_log(finding.advice, limit=None)}" if finding.advice else told
