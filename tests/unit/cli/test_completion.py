"""The completion of shells: what a Tab offers in bash, and that it starts nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_producer.cli.completion import completion_script
from spark_producer.cli.entry import COMMANDS, SHELLS, main, parser_of

DEADLINE = 60.0
TAB = """
source "$1"; shift
COMP_WORDS=(pyproducer "$@"); COMP_CWORD=$#; COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
_shtab_pyproducer pyproducer "${!#}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "pyproducer"
    path.write_text(completion_script("bash", parser_of(COMMANDS)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("", " ".join(COMMANDS)),
        ("to", "topics"),
        ("topics ", "list describe create delete"),
        ("topics create --part", "--partitions"),
        ("tail orders --isolation-level ", "read_uncommitted read_committed"),
        ("tail orders --no", ""),
        ("write rows", "rows.csv rows.json"),
        ("downconvert rows.j", "rows.json"),
        ("broker --data-dir ", "data"),
        ("broker --users rows.c", "rows.csv"),
        ("--comp", "--completion"),
        ("tail rows", ""),
    ],
)
def test_a_tab_in_bash(line: str, offered: str, script: Path, tmp_path: Path) -> None:
    """With an empty PATH: it starts no program, so it asks no broker."""
    for name in ("rows.csv", "rows.json"):
        (tmp_path / name).touch()
    (tmp_path / "data").mkdir()
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", TAB, "bash", str(script), *line.split(" ")],
        cwd=tmp_path,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stderr == ""
    assert sorted(done.stdout.split()) == sorted(offered.split())


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--completion", shell])
    printed = capsys.readouterr().out
    assert [name for name in COMMANDS if name not in printed] == []


def test_without_the_extra_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--completion", "bash"]) == 1
    assert capsys.readouterr().err == (
        "pyproducer: no completion script can be made: shtab is not installed. Run pip install 'pyproducer[completion]'\n"
    )


def test_a_command_imports_nothing_of_it() -> None:
    program = (
        "import sys; from spark_producer.cli.entry import main; main(['options', '--json']); "
        "print(sorted({'shtab', 'spark_producer.cli.completion'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert done.stderr == "[]\n"
