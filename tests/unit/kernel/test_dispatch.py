"""The choice between the twins of the kernel, and the message where the compiled one is missing."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from spark_producer.errors import ConfigError
from spark_producer.kernel import compiled, dispatch, portable

DOCS = Path(__file__).parents[3] / "docs"


def test_the_choice_by_name() -> None:
    for name, twin in (("portable", portable), ("compiled", compiled)):
        chosen = dispatch.load(name)
        assert (chosen.name, chosen.problem, chosen.describe()) == (name, "", f"{name} kernel")
        assert chosen.functions["encode_v2"] is twin.encode_v2
        assert set(chosen.functions) == set(dispatch.AT_IMPORT.functions)
        assert set(dispatch.load(name, dispatch.ON_DEMAND).functions) == set(dispatch.ON_DEMAND.functions)
    assert dispatch.load("").name == "compiled"
    with pytest.raises(ConfigError, match=r"PYPRODUCER_KERNEL='fast' is not a kernel\. Set it to portable or compiled"):
        dispatch.load("fast")


def test_no_module_has_the_name_of_a_function_which_its_import_would_replace() -> None:
    names = dispatch.AT_IMPORT.functions + dispatch.ON_DEMAND.functions
    assert {path.stem for path in Path(dispatch.__file__).parent.iterdir()} & set(names) == set()


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dispatch.Twins:
    """The kernel, and a module whose file is there and is no shared library, as if it came from another machine."""
    name = f"broken_{uuid.uuid4().hex}"
    (tmp_path / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"garbage" * 100)
    monkeypatch.syspath_prepend(tmp_path)
    return dispatch.AT_IMPORT._replace(compiled=("spark_producer.kernel.compiled", name))


UNBUILT = dispatch.AT_IMPORT._replace(compiled=("spark_producer.kernel.never_built",))


def test_without_a_compiled_kernel_the_portable_one_serves() -> None:
    chosen = dispatch.load("", UNBUILT)
    assert chosen.describe() == "portable kernel: no compiled module"
    assert chosen.functions == dispatch.load("portable").functions
    with pytest.raises(
        ConfigError,
        match=r"PYPRODUCER_KERNEL=compiled cannot be used: there is no compiled module. What to do: install the package with a C",
    ):
        dispatch.load("compiled", UNBUILT)


def test_a_compiled_kernel_that_cannot_be_loaded_does_not_stop_the_import(broken: dispatch.Twins) -> None:
    chosen = dispatch.load("", broken)
    assert chosen.describe().startswith("portable kernel: no compiled module that can be loaded (")
    assert "invalid ELF header" in chosen.problem or sys.platform != "linux"
    assert chosen.functions == dispatch.load("portable").functions
    with pytest.raises(ConfigError, match=r"PYPRODUCER_KERNEL=compiled cannot .* module that can be loaded \("):
        dispatch.load("compiled", broken)
    assert dispatch.load("portable", broken).describe() == "portable kernel"


FIRST_USE = """
import logging
from spark_producer import kernel
from spark_producer.kernel import dispatch
logging.basicConfig(format="%(message)s")
kernel.ON_DEMAND = dispatch.ON_DEMAND._replace(compiled=({broken!r},))
function = kernel.decode_v2
assert kernel.decode_v2 is function, "found once"
print(kernel.LOADED.describe(), function.__module__, kernel.encode_avro.__module__)
"""


def test_functions_that_cannot_be_loaded_at_their_first_use_are_portable_and_that_is_logged(
    broken: dispatch.Twins, tmp_path: Path
) -> None:
    path = os.pathsep.join([str(tmp_path), str(DOCS.parent)])
    command = [sys.executable, "-c", FIRST_USE.format(broken=broken.compiled[-1])]

    def run(wanted: str) -> tuple[str, str]:
        environment = os.environ | {"PYTHONPATH": path, dispatch.VARIABLE: wanted}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout, done.stderr

    printed, logged = run("")
    assert printed == "compiled kernel spark_producer.kernel.decode spark_producer.kernel.avro\n"
    assert logged.count("portable kernel: no compiled module that can be loaded") == 1
    printed, logged = run("compiled")
    assert printed == ""
    assert "ConfigError: PYPRODUCER_KERNEL=compiled cannot be used" in logged


def test_the_warning_says_what_is_lost_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    dispatch.warn(dispatch.load("", UNBUILT))
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    text = said.getMessage()
    assert text.startswith("portable kernel: no compiled module. It writes the same bytes")
    assert "`pip install --verbose .` shows why a build failed" in text
    assert "PYPRODUCER_KERNEL=portable" in text
    assert "--no-binary" not in text


def test_sources_that_hide_a_compiled_install_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when Python is started in a checkout: the sources there come before the package that pip has compiled."""
    installed = tmp_path / "site-packages" / "spark_producer"
    (installed / "kernel").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed.parent)])
    assert dispatch.load("", UNBUILT).problem == "no compiled module", "nothing was compiled there either"
    (installed / "kernel" / f"compiled{EXTENSION_SUFFIXES[0]}").touch()
    chosen = dispatch.load("", UNBUILT)
    own = Path(dispatch.__file__).parent.parent
    assert chosen.problem == (
        f"no compiled module in {own}, whose sources hide the package that is installed in {installed}"
    )
    dispatch.warn(chosen)
    assert "For the compiled one start Python and Spark in another folder than the checkout." in caplog.text
    assert "C compiler" not in caplog.text
    with pytest.raises(ConfigError, match=r"hide the package .*: start Python and Spark in another folder"):
        dispatch.load("compiled", UNBUILT)


def test_the_package_does_not_take_itself_for_another_install(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(dispatch.__file__).parent.parent
    monkeypatch.chdir(own.parent)
    assert dispatch.find_compiled_install(["", str(own.parent)], own) is None


def test_the_wanted_kernel_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    dispatch.warn(dispatch.load("portable"))
    dispatch.warn(dispatch.load("compiled"))
    assert not caplog.records


def pairs(text: str, portable_row: str, compiled_row: str, figure: str) -> Iterator[float]:
    """The portable kernel's figure by the compiled one's, in each table of a page."""
    found = [
        [float(number) for number in re.findall(rf"^\|[^|]*\|? ?{re.escape(row)} \|{figure}", text, re.MULTILINE)]
        for row in (portable_row, compiled_row)
    ]
    assert len(found[0]) == len(found[1]) > 0
    yield from (slow / fast for slow, fast in zip(*found, strict=True))


def test_the_figures_are_those_of_the_benchmarks(caplog: pytest.LogCaptureFixture) -> None:
    dispatch.warn(dispatch.load("", UNBUILT))
    stated = re.search(
        r"are up to (\d+) % slower if .* alike, and (\d+) % if .* headers and many lengths; .* take (\d+) to (\d+) times as",
        caplog.messages[0],
    )
    assert stated is not None
    longer = list(pairs(kernel_page(), "group and encode, portable", "group and encode, compiled", r" ([\d.]+) \|"))
    assert [int(number) for number in stated.groups()] == [
        slower_by(with_headers=False), slower_by(with_headers=True), round(min(longer)), round(max(longer)),
    ]  # fmt: skip


def kernel_page() -> str:
    return (DOCS / "benchmarks_kernel.md").read_text(encoding="utf-8")


def slower_by(with_headers: bool) -> int:
    """Most per cent by which the portable kernel's whole writes are slower, in the scenes with or without headers."""
    _, *sections, _how = (DOCS / "benchmarks.md").read_text(encoding="utf-8").split("\n## ")
    chosen = [section for section in sections if ("headers" in section.splitlines()[0]) is with_headers]
    figure = r" ([\d.]+);"
    rates = [
        rate
        for section in chosen
        if "| pyproducer, portable kernel |" in section
        for rate in pairs(section, "pyproducer, portable kernel", "pyproducer", figure)
    ]
    return round(100 * max(1 - rate for rate in rates))


PROGRAM = """
import importlib.util as u
find = u.find_spec
u.find_spec = lambda name, *more: None if name.endswith("kernel.compiled") else find(name, *more)
"""


def said_by(program: str) -> list[str]:
    """Return the lines on stderr of a process without a compiled kernel and without logging set up."""
    environment = {name: value for name, value in os.environ.items() if name != dispatch.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program], capture_output=True, text=True, env=environment, check=True
    )
    return done.stderr.splitlines()


TASK = """
import pyarrow as pa
from spark_producer.broker import LocalBroker
from spark_producer.config import parse_options
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter
with LocalBroker() as broker:
    writer = BatchWriter(TaskSettings(*parse_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"})))
    for _ in range(3):
        report = writer.write(iter([pa.record_batch({"value": ["a"]})]))
        writer.commit([report])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("import spark_producer.datasource, spark_producer.__main__", 0),  # the planner, the commit, the command line
        ("from spark_producer import ProducerConfig, errors", 0),
        ("from spark_producer import Producer; from spark_producer import Producer", 1),
        (TASK, 1),
    ],
    ids=["imports", "errors", "Producer", "three tasks"],
)
def test_only_writers_log_and_once(program: str, lines: int) -> None:
    said = said_by(program)
    assert len(said) == lines, said
    assert all("portable kernel: no compiled module" in line for line in said)
