"""Commands with streams that are closed, full, narrow or not Unicode, and with texts that would control a terminal."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import spark_producer
from spark_producer.admin.checks import Finding, FindingState
from spark_producer.cli.check import line
from spark_producer.cli.console import print_error, print_line
from spark_producer.cli.entry import COMMANDS, INTERRUPTED, main

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 60.0
HEAVY = {"numpy", "pandas", "pyarrow"}
EVIL = "\x1b[2J\x9b31m\u202e\nx"
ESCAPED = r"\x1b[2J\x9b31m\u202e\nx"


def shell(command: str, **environment: str) -> tuple[int, str, str]:
    """Run a command of the shell in which `pyproducer` is a function; return (exit code, stdout, stderr)."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'pyproducer() {{ "{sys.executable}" -m spark_producer "$@"; }}; {command}'],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    return done.returncode, done.stdout, done.stderr


def test_a_full_disk_is_one_line_and_an_error() -> None:
    code, _, message = shell("pyproducer options > /dev/full")
    assert (code, message) == (1, "pyproducer: the output cannot be written: No space left on device\n")


def test_closed_streams_are_no_defect() -> None:
    assert shell("pyproducer options >&-") == (0, "", "")
    assert shell("pyproducer options >&- 2>&-") == (0, "", "")
    code, shown, message = shell("pyproducer tail t --bootstrap-servers nonsense 2>&-")
    assert (code, shown, message) == (1, "", ""), "what stderr would have had is not said on stdout"


def test_an_error_with_a_closed_stderr_is_still_an_error() -> None:
    assert shell("pyproducer tail t --bootstrap-servers nonsense 2>/dev/full") == (1, "", "")


def test_a_question_without_a_terminal_is_one_error() -> None:
    for command in ("topics delete x", "txn resolve x"):
        code, _, message = shell(f"pyproducer {command} --bootstrap-servers 127.0.0.1:1 --timeout 1 <&-")
        assert (code, len(message.splitlines())) == (1, 1), message
        assert message.startswith("pyproducer: ")


@pytest.mark.parametrize("arguments", ["--help", "tail --help", "options"])
def test_every_page_is_shown_in_ascii_too(arguments: str) -> None:
    code, shown, message = shell(f"pyproducer {arguments}", PYTHONIOENCODING="ascii", COLUMNS="1")
    assert (code, message) == (0, "")
    assert shown.isascii()


def test_help_and_errors_of_arguments_load_neither_arrow_nor_pandas() -> None:
    """A user waits for them. All commands together load most of the package, which takes a second of CPU time."""
    program = "import sys\nfrom spark_producer.cli.entry import main\n"
    program += "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    print(*sorted(sys.modules), file=sys.stderr)"
    for arguments in (["--help"], ["nonsense"], ["tail", "--offset"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        loaded = set(done.stderr.splitlines()[-1].split())
        assert "spark_producer.cli.entry" in loaded
        assert loaded & {"pandas", "spark_producer.broker"} == set()
        assert arguments[0] == "tail" or loaded & HEAVY == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_loaded_by_its_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: pyproducer {command} ")


@pytest.mark.parametrize(("command", "code"), [("check", INTERRUPTED), ("topics list", INTERRUPTED), ("tail t", 0)])
def test_ctrl_c_is_an_end_only_of_what_has_no_other(
    command: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script must not take a check that was interrupted for one that found nothing wrong."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    # Patched, since a signal would have to come at the right moment.
    monkeypatch.setattr("spark_producer.cli.connection_args.parse_options", interrupted)
    assert main(command.split()) == code
    assert bool(capsys.readouterr().err) == (code != 0)


def test_what_peers_and_files_say_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"the broker says {EVIL}")
    print_line(EVIL)
    shown = capsys.readouterr()
    assert shown.err == f"pyproducer: the broker says {ESCAPED}\n"
    assert shown.out == f"{ESCAPED}\n"
    reported = line(Finding("brokers", FindingState.FAILED, f"broker at {EVIL}", EVIL))
    assert reported.splitlines() == [
        rf"failed   brokers: broker at {ESCAPED}",
        rf"         what to do: {ESCAPED}",
    ]


def test_nothing_is_coloured() -> None:
    """So `NO_COLOR` has nothing to turn off. The bar, which is for terminals only, clears the rest of its line."""
    sequences: set[str] = set()
    for path in Path(spark_producer.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                sequences |= set(re.findall(r"\x1b\[[0-9;]*[A-Za-z]?", node.value))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
                assert {name.partition(".")[0] for name in names} & {"rich", "colorama", "termcolor", "curses"} == set()
    assert sequences == {"\x1b[K"}
