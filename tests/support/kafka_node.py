"""One Apache Kafka node (KRaft, broker and controller in one) as a child process.

Owns: the jars of a Kafka version, a node's settings file, its data directory, its start, end and logs.
Must not know: how many nodes there are beyond what the settings say, topics, clients.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.class_archives import archive_of, use
from tests.support.ivy import class_path, fetch_jars, java
from tests.support.processes import ChildProcess

KAFKA_28 = "2.8.2"
"""The last one that needs ZooKeeper, and the oldest that is tried."""
KAFKA_33 = "3.3.2"
"""The first one whose KRaft is for production."""
KAFKA_39 = "3.9.2"
KAFKA_4 = "4.3.1"
"""The version of most tests."""
KAFKA_44 = "4.4.0"
"""The newest one."""

# Kafka logs through slf4j 1.7; its own distributions add these bindings, its POMs do not (those of 3.x bring reload4j).
_LOG_BINDINGS = {
    2: ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    4: ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
}

# C1 only and the serial collector: a node is up in about half the time and half the CPU.
TEST_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

STOP_SECONDS = 30.0
FORMAT_SECONDS = 120.0


class KafkaFailed(RuntimeError):
    """A node or a tool of Kafka's did not do what was asked; the message holds the end of its log."""


@dataclass(frozen=True)
class NodePorts:
    """Ports of one node: for clients, between brokers, and for the controllers' quorum."""

    client: int
    internal: int
    controller: int


def kafka_jars(version: str) -> Path:
    """Folder of the jars of Kafka `version`, with its command line tools."""
    number = _major(version)
    binding = (_LOG_BINDINGS[number],) if number in _LOG_BINDINGS else ()
    core = ("org.apache.kafka", "kafka_2.13", version)
    tools = ("org.apache.kafka", "kafka-tools", version)
    return fetch_jars(core, tools, *binding, name=f"kafka-{version}")


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def class_archive(version: str) -> Path:
    """The archive of the classes of Kafka `version`, beside its jars."""
    return archive_of(kafka_jars(version), kafka_jars(version))


def jvm_options(version: str) -> tuple[str, ...]:
    """Options of every JVM of Kafka `version` that tests start."""
    return (*TEST_JVM, *use(class_archive(version)))


class KafkaNode:
    """One node; `home` holds its settings, its log and its data, and outlives stop and start."""

    def __init__(self, version: str, home: Path, settings: Mapping[str, str], jvm: Sequence[str]) -> None:
        self.version = version
        self.home = home
        self.data = home / "data"
        self._jvm = tuple(jvm)
        self._process: ChildProcess | None = None
        self._formatting: ChildProcess | None = None
        self.plugins: Sequence[Path] = ()
        """Folders of classes that the settings name, after the jars of Kafka."""
        home.mkdir(parents=True)
        lines = {**settings, "log.dirs": str(self.data)}
        self._settings = home / "server.properties"
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    @property
    def process(self) -> ChildProcess:
        """The running or last process."""
        if self._process is None:
            raise KafkaFailed(f"{self.home.name} was never started")
        return self._process

    def begin_format(self, cluster_id: str, more: Sequence[str] = ()) -> None:
        """Start Kafka's StorageTool on the empty data directory, with `more` arguments."""
        arguments = ("format", "--cluster-id", cluster_id, "--config", str(self._settings), *more)
        command = java_command(self.version, self.home, "kafka.tools.StorageTool", arguments, jvm_options(self.version))
        self._formatting = ChildProcess(command, self.home / "format.log")

    def finish_format(self) -> None:
        """Wait for the StorageTool; raises KafkaFailed with its output when it fails."""
        assert self._formatting is not None
        if self._formatting.wait(FORMAT_SECONDS) != 0:
            raise KafkaFailed(f"formatting {self.home.name} failed:\n{self._formatting.tail()}")

    def start(self) -> None:
        """Start the node on its data; returns at once."""
        if self._process is not None and self._process.exit_code is None:
            raise KafkaFailed(f"{self.home.name} runs already")
        temporary = self.home / "tmp"  # for the libraries that Java unpacks, which a killed node leaves
        temporary.mkdir(exist_ok=True)
        jvm = (*self._jvm, f"-Djava.io.tmpdir={temporary}")
        command = java_command(self.version, self.home, "kafka.Kafka", (str(self._settings),), jvm)
        place = command.index("-cp") + 1
        command[place] = ":".join([command[place], *map(str, self.plugins)])
        self._process = ChildProcess(command, self.home / "node.log")

    def check_alive(self) -> None:
        """Raise KafkaFailed when the process has ended."""
        code = self.process.exit_code
        if code is not None:
            raise KafkaFailed(f"{self.home.name} ended with exit code {code}:\n{self.process.tail()}")

    def stop(self) -> None:
        """Orderly shutdown (SIGTERM), forced after a while."""
        self.process.terminate(STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL: no flush, no goodbye. Nothing happens when it never ran."""
        for process in (self._formatting, self._process):
            if process is not None:
                process.kill()


def java_command(
    version: str, home: Path, main_class: str, arguments: Sequence[str], jvm: Sequence[str], level: str = "INFO"
) -> list[str]:
    """Command line of a Java program of Kafka `version`, logging at `level` to standard error."""
    if _major(version) < 4:
        name, text = "log4j.properties", _LOG4J_1.format(level=level)
        option = f"-Dlog4j.configuration=file:{home / f'{level}-{name}'}"
    else:
        name, text = "log4j2.properties", _LOG4J_2.format(level=level)
        option = f"-Dlog4j2.configurationFile={home / f'{level}-{name}'}"
    (home / f"{level}-{name}").write_text(text)
    return [java(), *jvm, option, "-cp", class_path(kafka_jars(version)), main_class, *arguments]


def run_tool(
    version: str, home: Path, main_class: str, arguments: Sequence[str], timeout: float, *, stdin: str = ""
) -> str:
    """Run a command line tool of Kafka's and return its standard output; raises KafkaFailed unless it exits with 0."""
    command = java_command(version, home, main_class, arguments, jvm_options(version), level="ERROR")
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise KafkaFailed(f"{main_class} took longer than {timeout:.0f} s") from error
    if done.returncode != 0:
        raise KafkaFailed(f"{main_class} ended with exit code {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


_LOG4J_1 = """\
log4j.rootLogger={level}, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{{ISO8601}} %p %m (%c)%n
"""

_LOG4J_2 = """\
rootLogger.level={level}
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{{ISO8601}} %p %m (%c)%n
"""
