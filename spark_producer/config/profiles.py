"""Profiles: sets of options under one name, or from a properties file in the form of Kafka's own tools.

From the one table of profiles `make docs` writes conf/*.properties. The options of a profile are checked like all others.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.errors import ConfigError

SUFFIX = ".properties"
MAX_BYTES = 1 << 20
"""The most bytes of a file. A device, or a file of data that was named by mistake, is not read into memory."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,79}")
"""The form of the names of options. What has another form is not shown: it may be a piece of a key or password."""


class Setting(NamedTuple):
    """One option of a profile, under Kafka's name, and what it is for."""

    option: str
    value: str
    why: str


class Profile(NamedTuple):
    """What a profile is for, and what it sets."""

    doc: str
    settings: tuple[Setting, ...]


PROFILES: Mapping[str, Profile] = {
    "throughput": Profile(
        "Full batches get much memory, for large batch writes, above all to many partitions. A row may wait a second.",
        (
            Setting(
                "buffer.memory", "134217728", "this is room for full batches of 64 partitions, in each Python worker"
            ),
            Setting(
                "max.request.size", "16777216", "one request takes all batches that wait for a broker, up to this size"
            ),
            Setting("linger.ms", "1000", "batches have time to fill; the end of a task does not wait for it"),
        ),
    ),
    "latency": Profile(
        "Rows leave at once, and what fails is tried again soon. It is for streams of few rows, and for `Producer.send`.",
        (
            Setting("linger.ms", "0", "no batch waits to fill"),
            Setting("batch.size", "16384", "a full batch is small, so it is on its way soon"),
            Setting("retry.backoff.ms", "20", "the first pause before a retry; it doubles with each retry"),
            Setting("retry.backoff.max.ms", "200", "the longest pause before a retry"),
            Setting(
                "reconnect.backoff.ms", "20", "the first pause before connecting again; it doubles with each failure"
            ),
            Setting("reconnect.backoff.max.ms", "200", "the longest pause before connecting again"),
        ),
    ),
    "small-memory": Profile(
        "Each Python worker takes little memory, for executors with many cores and little overhead memory.",
        (
            Setting(
                "buffer.memory",
                "4194304",
                "an eighth of the default; a full pool stops the task, and loses nothing",
            ),
            Setting("batch.size", "16384", "the batches of a hundred partitions fit into the pool"),
            Setting("send.buffer.bytes", "65536", "the operating system takes this memory for each connection"),
            Setting("receive.buffer.bytes", "32768", "answers are short"),
        ),
    ),
    "kafka3": Profile(
        "The defaults of Java's producer before Kafka 4.0, for comparisons, and for settings tuned on top of them.",
        (
            Setting("linger.ms", "0", "this is the default before 4.0; it is 5 since then"),
            Setting("batch.size", "16384", "this is the default of all versions"),
            Setting("max.request.size", "1048576", "this is the default of all versions"),
            Setting(
                "send.buffer.bytes", "131072", "Java sets this size; where it is not set, the operating system tunes it"
            ),
            Setting("receive.buffer.bytes", "32768", "Java sets this size too"),
            Setting("compression.zstd.level", "3", "this is the default of all versions that have the option"),
            Setting(
                "metadata.recovery.strategy", "none", "before 4.0 a producer did not go back to the bootstrap servers"
            ),
        ),
    ),
    "event-hubs": Profile(
        "What Azure Event Hubs asks of clients beside a login: small requests, and connections that are not idle for long.",
        (
            Setting("max.request.size", "1000000", "a request of more than 1046528 bytes has its connection closed"),
            Setting("batch.size", "900000", "a batch and what is around it fit into one request"),
            Setting(
                "connections.max.idle.ms", "180000", "connections that are idle for 240 s are dropped without a word"
            ),
            Setting("metadata.max.age.ms", "180000", "asked this often, a connection is not dropped for being idle"),
        ),
    ),
}


def profile(name: str) -> dict[str, str]:
    """Return Kafka's option names, without a prefix, and values of a profile: one of `PROFILES`, or a file `….properties`.

    Raises:
        ConfigError: there is no such profile or file, or a line of the file is not `name=value`. It never shows the line.
    """
    if name.endswith(SUFFIX):
        return _read(name)
    found = PROFILES.get(name.lower())
    if found is None:
        raise ConfigError(
            f"there is no profile {name!r}: {', '.join(PROFILES)}, or the path of a file that ends in {SUFFIX}"
        )
    return {setting.option: setting.value for setting in found.settings}


def _read(name: str) -> dict[str, str]:
    found = _entries(name)
    if isinstance(found, str):
        raise ConfigError(found)
    return found


def _entries(name: str) -> dict[str, str] | str:
    """Return the options of a file, or what is wrong with it: a value, since the local variables here may hold passwords."""
    from pathlib import Path  # with urllib and ipaddress, which it imports, it takes 5 ms unless it is loaded

    from spark_producer.common.java_properties import properties_of

    path = Path(name)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return f"the profile {str(path)!r} has more than {MAX_BYTES:,} bytes: no file of options is as long"
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"at byte {error.start}: it is no UTF-8 text"
        return f"the profile {str(path)!r} cannot be read: {type(error).__name__}, {why}"
    found = {}
    for entry in properties_of(text):
        where = f"line {entry.line} of the profile {str(path)!r}"
        if entry.malformed:
            return f"{where} has a backslash and u without four hexadecimal digits; a backslash itself is written twice"
        # A word at the beginning of a line may be the rest of a value above, whose line does not end with a backslash.
        named = "." in entry.key if entry.separator not in ("=", ":") else entry.key
        if not (named and entry.separator and _NAME.fullmatch(entry.key)):
            return f"{where} is neither name=value nor a # comment; a value that goes on has a backslash before its end of line"
        found[entry.key] = entry.value
    return found


def render_properties(name: str) -> str:
    """Return a profile as a file of conf/, which Kafka's own tools can read too."""
    doc, settings = PROFILES[name]
    lines = [f"# {line}" for line in textwrap.wrap(doc.replace("`", ""), 110)]
    lines += [f'# .option("profile", "{name}"), or a copy of this file: .option("profile", "my.properties")']
    for option, value, why in settings:
        lines += ["", f"# {why}", f"{option}={value}"]
    return "\n".join(lines) + "\n"


def render_markdown() -> str:
    """Return the profiles and what they set, for docs/options.md."""
    lines = ["| profile | what it is for | what it sets |", "|---|---|---|"]
    for name, (doc, settings) in PROFILES.items():
        values = ", ".join(f"`{option}={value}`" for option, value, _ in settings)
        lines.append(f"| `{name}` | {doc} | {values} |")
    return "\n".join(lines) + "\n"
