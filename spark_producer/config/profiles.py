"""Profiles: named sets of options, or a properties file in the format of Kafka's own tools.

`make docs` writes conf/*.properties from the table here. The options of a profile are checked like all others.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.errors import ConfigError

SUFFIX = ".properties"
MAX_BYTES = 1 << 20
"""Maximum size of a file in bytes, so that a device or data file named by mistake is not read into memory."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,79}")
"""The form of option names. A text of another form is not shown, since it may be a part of a key or password."""


class Setting(NamedTuple):
    """One option of a profile, under Kafka's name, with its purpose."""

    option: str
    value: str
    why: str


class Profile(NamedTuple):
    """The purpose of a profile, and its options."""

    doc: str
    settings: tuple[Setting, ...]
    for_reads: bool = False
    """Whether reads take it too, without its options of writes."""


PROFILES: Mapping[str, Profile] = {
    "throughput": Profile(
        "Large batch writes, above all to many partitions. A row may wait a second.",
        (
            Setting("buffer.memory", "134217728", "full batches of 64 partitions fit, in each Python worker"),
            Setting(
                "max.request.size", "16777216", "one request takes all batches that wait for a broker, up to this size"
            ),
            Setting("linger.ms", "1000", "batches have time to fill; the end of a task does not wait for it"),
        ),
    ),
    "far": Profile(
        "Brokers that answer after hundreds of milliseconds: far away, or without disks. Each producer has a pool of 256 MiB.",
        (
            Setting(
                "buffer.memory", "268435456", "what is in flight and what fills meanwhile: rate x round trip, twice"
            ),
            Setting(
                "max.request.size",
                "16777216",
                "five requests in flight have up to 80 MiB for a broker",
            ),
            Setting("linger.ms", "1000", "batches have time to fill; a row waits for the round trip anyway"),
        ),
    ),
    "latency": Profile(
        "Rows are sent at once: for streams of few rows, and `Producer.send`.",
        (
            Setting("linger.ms", "0", "no batch waits to fill"),
            Setting("batch.size", "16384", "a full batch is small, so it is sent soon"),
            Setting("retry.backoff.ms", "20", "the first pause before a retry; it doubles with each retry"),
            Setting("retry.backoff.max.ms", "200", "the longest pause before a retry"),
            Setting(
                "reconnect.backoff.ms", "20", "the first pause before connecting again; it doubles with each failure"
            ),
            Setting("reconnect.backoff.max.ms", "200", "the longest pause before connecting again"),
        ),
    ),
    "small-memory": Profile(
        "Executors with many cores and little overhead memory.",
        (
            Setting(
                "buffer.memory",
                "4194304",
                "an eighth of the default; while the pool is full, the task waits, and loses nothing",
            ),
            Setting("batch.size", "16384", "the batches of a hundred partitions fit into the pool"),
            Setting("send.buffer.bytes", "65536", "the operating system takes this memory for each connection"),
            Setting("receive.buffer.bytes", "32768", "responses are short"),
        ),
    ),
    "kafka3": Profile(
        "The defaults of Java's producer before Kafka 4.0, to compare with or build on.",
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
        "The limits of Azure Event Hubs, without a login.",
        (
            Setting("max.request.size", "1000000", "a request of more than 1046528 bytes has its connection closed"),
            Setting("batch.size", "900000", "a batch and its headers fit into one request"),
            Setting("connections.max.idle.ms", "180000", "connections that are idle for 240 s are dropped silently"),
            Setting("metadata.max.age.ms", "180000", "refreshes keep a connection from being dropped as idle"),
        ),
        for_reads=True,
    ),
}


def profile(name: str) -> dict[str, str]:
    """Return Kafka's option names, without a prefix, and values of a profile: one of `PROFILES`, or a file `….properties`.

    Raises:
        ConfigError: there is no such profile or file, or a line of the file is not `name=value`. The message does not show
            the line, which may be a secret.
    """
    if name.endswith(SUFFIX):
        return _read(name)
    found = PROFILES.get(name.lower())
    if found is None:
        raise ConfigError(
            f"unknown profile {name!r}. Name one of {', '.join(PROFILES)}, or the path of a file that ends in {SUFFIX}"
        )
    return {setting.option: setting.value for setting in found.settings}


def profile_for_reads(name: str) -> dict[str, str]:
    """Return the options of a profile that reads take: a file, or one with options of connections. Options of writes are in it.

    Raises:
        ConfigError: as `profile`; or the profile is about writes.
    """
    named = PROFILES.get(name.lower())
    if named is not None and not named.for_reads:
        others = [each for each, found in PROFILES.items() if found.for_reads]
        raise ConfigError(
            f"the profile {name.lower()!r} is for writes. Leave it out of the read, or name {', '.join(others)} or the path of a "
            f"file that ends in {SUFFIX}"
        )
    return profile(name)


def _read(name: str) -> dict[str, str]:
    found = _entries(name)
    if isinstance(found, str):
        raise ConfigError(found)
    return found


def _entries(name: str) -> dict[str, str] | str:
    """Return the options of a file, or an error message. It is not raised from here, where local variables may have passwords."""
    from pathlib import Path  # it imports urllib and ipaddress, which takes 5 ms

    from spark_producer.common.java_properties import properties_of

    path = Path(name)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return f"the profile {str(path)!r} cannot be read: it has more than {MAX_BYTES:,} bytes. Name a file of options"
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"at byte {error.start}: it is not UTF-8"
        return f"the profile {str(path)!r} cannot be read: {type(error).__name__}, {why}"
    found = {}
    for entry in properties_of(text):
        line = f"line {entry.line} of the profile {str(path)!r}"
        if entry.malformed:
            return f"{line} has \\u without four hexadecimal digits. Write a backslash itself twice"
        # A key without a dot or = may be the rest of a value above, whose line does not end with a backslash.
        named = "." in entry.key if entry.separator not in ("=", ":") else entry.key
        if not (named and entry.separator and _NAME.fullmatch(entry.key)):
            return f"{line} is neither name=value nor a # comment. End a line with a backslash if its value continues in the next"
        found[entry.key] = entry.value
    return found


def render_properties(name: str) -> str:
    """Return a profile as the text of a file of conf/, which Kafka's own tools can read too."""
    doc, settings, _ = PROFILES[name]
    lines = [f"# {line}" for line in textwrap.wrap(doc.replace("`", ""), 110)]
    lines += [f'# .option("profile", "{name}"), or a copy of this file: .option("profile", "my.properties")']
    for option, value, why in settings:
        lines += ["", f"# {why}", f"{option}={value}"]
    return "\n".join(lines) + "\n"


def render_markdown() -> str:
    """Return the profiles and their options as Markdown, for docs/options.md."""
    lines = ["| profile | purpose | options |", "|---|---|---|"]
    for name, (doc, settings, _) in PROFILES.items():
        values = ", ".join(f"`{option}={value}`" for option, value, _ in settings)
        lines.append(f"| `{name}` | {doc} | {values} |")
    return "\n".join(lines) + "\n"
