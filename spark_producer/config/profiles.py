"""Profiles: sets of options under one name, or from a properties file in the form of Kafka's own tools.

From the one table of profiles `make docs` writes conf/*.properties. The options of a profile are checked like all others.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.errors import ConfigError

SUFFIX = ".properties"


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
}


def profile(name: str) -> dict[str, str]:
    """Return Kafka's option names, without a prefix, and values of a profile: one of `PROFILES`, or a file `….properties`.

    Raises:
        ConfigError: there is no such profile or file, or a line of the file is not `name=value`.
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
    from pathlib import Path  # with urllib and ipaddress, which it imports, it takes 5 ms unless it is loaded

    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the profile {str(path)!r} cannot be read: {type(error).__name__}, {error}") from error
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        option, equals, value = stripped.partition("=")
        if not equals or not option.strip():
            # The message leaves out the line itself, which may hold a password.
            raise ConfigError(f"line {number} of the profile {str(path)!r} is neither name=value nor a # comment")
        found[option.strip()] = value.strip()
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
