"""The command `pyproducer check`, which finds out whether a write would work."""

from __future__ import annotations

import argparse

from spark_producer.admin.checks import Finding, check_cluster, failed
from spark_producer.cli.arg_types import positive
from spark_producer.cli.connection_args import add_connection, connection_options, settings_of
from spark_producer.cli.json_output import add_json, print_json
from spark_producer.cli.progress import WaitNotice
from spark_producer.common.escape import for_log

CLIENT_ID = "pyproducer-check"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    check = commands.add_parser(
        "check",
        description="Check the connection, TLS, the login and API versions; with --topic also the topic, its leaders, "
        "min.insync.replicas and your rights. Advice follows each problem. Nothing is written or created. The exit code is 1 if "
        "a check has failed, and else 0. A missing topic has failed, even where brokers create topics.",
    )
    add_connection(check)
    check.add_argument("--topic", metavar="TOPIC", help="the topic to write to")
    check.add_argument(
        "--timeout",
        type=positive,
        default=10,
        metavar="SECONDS",
        help="maximum wait for each response (default: %(default)s)",
    )
    add_json(check, "one JSON object at the end")
    check.set_defaults(run=_run, unfinished="the check is not done")


def _run(chosen: argparse.Namespace) -> int:
    settings = settings_of({"kafka.client.id": CLIENT_ID} | connection_options(chosen))
    findings = []
    for finding in check_cluster(settings, chosen.topic, timeout=chosen.timeout, on_wait=WaitNotice(chosen.timeout)):
        findings.append(finding)
        if not chosen.json:
            print(line(finding), flush=True)
    if chosen.json:
        print_json({"ok": not failed(findings), "findings": [finding._asdict() for finding in findings]})
    return int(failed(findings))


def line(finding: Finding) -> str:
    """Return a finding as a line of text, with its advice as a second line."""
    text = f"{finding.state:<8} {for_log(finding.name)}: {for_log(finding.text, limit=None)}"
    return f"{text}\n         what to do: {for_log(finding.advice, limit=None)}" if finding.advice else text
