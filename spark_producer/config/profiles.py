"""Profiles: options that belong together, by a name, or from a properties file in the form of Kafka's own tools.

Owns: ONE table of profiles, from which `make docs` writes conf/*.properties, and the form of these files.
Must not know: which options there are; the table of options checks what comes from here like all the rest.
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
    """When to take it, and what it sets."""

    doc: str
    settings: tuple[Setting, ...]


PROFILES: Mapping[str, Profile] = {
    "throughput": Profile(
        "Much memory for full batches, for large batch writes, above all to many partitions. Rows may wait a second.",
        (
            Setting("buffer.memory", "134217728", "room for full batches of 64 partitions; per Python worker"),
            Setting("max.request.size", "16777216", "as many of them as wait for a broker leave at once"),
            Setting("linger.ms", "1000", "time for them to fill; the end of a task does not wait for it"),
        ),
    ),
    "latency": Profile(
        "Rows leave at once, and what fails is tried again at once. For streams of few rows, and for `Producer.send`.",
        (
            Setting("linger.ms", "0", "no batch waits to fill"),
            Setting("batch.size", "16384", "a batch that is full is small, and on its way soon"),
            Setting("retry.backoff.ms", "20", "first pause before a retry; doubles with each"),
            Setting("retry.backoff.max.ms", "200", "longest pause before a retry"),
            Setting("reconnect.backoff.ms", "20", "first pause before connecting again; doubles with each failure"),
            Setting("reconnect.backoff.max.ms", "200", "longest pause before connecting again"),
        ),
    ),
    "small-memory": Profile(
        "As little memory in each Python worker as will do, for executors with many cores and little overhead memory.",
        (
            Setting("buffer.memory", "4194304", "an eighth; a full pool stops the task from reading, it loses nothing"),
            Setting("batch.size", "16384", "so that the batches of a hundred partitions fit into it"),
            Setting("send.buffer.bytes", "65536", "memory of the kernel for each connection"),
            Setting("receive.buffer.bytes", "32768", "as much for answers, which are short"),
        ),
    ),
    "kafka3": Profile(
        "The defaults of Java's producer before Kafka 4.0, for comparisons, and for what was tuned on top of them.",
        (
            Setting("linger.ms", "0", "the default before 4.0; 5 since then"),
            Setting("batch.size", "16384", "the default of all versions"),
            Setting("max.request.size", "1048576", "the default of all versions too"),
            Setting("send.buffer.bytes", "131072", "Java fixes it; without it the system tunes it by itself"),
            Setting("receive.buffer.bytes", "32768", "as fixed as the other one"),
            Setting("compression.zstd.level", "3", "the default of all versions that have the option"),
            Setting("metadata.recovery.strategy", "none", "before 4.0 nobody went back to the bootstrap servers"),
        ),
    ),
}


def profile(name: str) -> dict[str, str]:
    """Kafka's option names, without a prefix, and values of a profile: one of `PROFILES`, or a file `….properties`.

    Raises:
        ConfigError: no such profile or file, or a line of the file that is no `name=value`.
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
    from pathlib import Path  # with urllib and ipaddress below it 5 ms, where nobody has imported it already

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
            # without the line itself, which may hold a password
            raise ConfigError(f"line {number} of the profile {str(path)!r} is neither name=value nor a # comment")
        found[option.strip()] = value.strip()
    return found


def render_properties(name: str) -> str:
    """A profile as a file of conf/, which Kafka's own tools read as well."""
    doc, settings = PROFILES[name]
    lines = [f"# {line}" for line in textwrap.wrap(doc.replace("`", ""), 110)]
    lines += [f'# .option("profile", "{name}"), or a copy of this file: .option("profile", "my.properties")']
    for option, value, why in settings:
        lines += ["", f"# {why}", f"{option}={value}"]
    return "\n".join(lines) + "\n"


def render_markdown() -> str:
    """The profiles and what they set, for docs/options.md."""
    lines = ["| profile | what it is for | what it sets |", "|---|---|---|"]
    for name, (doc, settings) in PROFILES.items():
        values = ", ".join(f"`{option}={value}`" for option, value, _ in settings)
        lines.append(f"| `{name}` | {doc} | {values} |")
    return "\n".join(lines) + "\n"
