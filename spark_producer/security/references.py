"""References to secrets, `${env:NAME}` and `${file:/path}`, which are resolved only in the process that connects.

They are more restricted than the config providers of Kafka's Java client (KIP-297, KIP-421), whose defaults let the author of
options read all files and variables of the process (CVE-2024-31141): here a list must allow each reference.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from spark_producer.common.escape import for_log
from spark_producer.common.java_properties import property_of
from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError

ALLOW_VARIABLE: Final = "PYPRODUCER_SECRETS_ALLOW"
"""The environment variable that overrides the option `secretsAllow`, even if it is empty, so that the platform decides."""

MAX_FILE_BYTES: Final = 64 * 1024
"""Maximum bytes of a file that a reference names: keys and passwords are smaller, and a worker must not read a whole disk."""

_REFERENCE: Final = re.compile(r"\$\{(?P<provider>[A-Za-z][\w.-]*):(?P<rest>.*)\}", re.DOTALL)
_PART: Final = re.compile(r"\$\{(?:env|file):")
_RULE: Final = re.compile(r"env:[A-Za-z0-9_]*\*?|file:/.*")
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


class _Variables:
    """The environment, wrapped so that a traceback with local variables does not print it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.get = environ.get


def is_reference(text: str) -> bool:
    """Return whether the whole `text` is a reference to any provider. Surrounding blanks are ignored."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def resolve(
    secret: Secret, allowed: Sequence[str], environ: Mapping[str, str] = os.environ, *, name: str = "a secret option"
) -> str:
    """Return the text of a secret, or the target of a reference. Files and variables are read on each call.

    `allowed` has the rules for references: `env:NAME`, `env:PREFIX*` or `file:/directory/`. PYPRODUCER_SECRETS_ALLOW in `environ`
    overrides them, with commas between rules. `name` is the option's name, for errors.

    Raises:
        ConfigError: the reference is not allowed or malformed, or its target does not exist or cannot be read. The error has the
            attribute `fatal`, and contains only names.
    """
    variables = _Variables(environ)
    del environ
    found = _REFERENCE.fullmatch(secret.reveal().strip())
    if found is None:
        if _PART.search(secret.reveal()):
            raise _error(name, "a reference must be the whole value, without text around it")
        return secret.reveal()
    provider, rest = found["provider"], found["rest"]
    if "${" in rest or "}" in rest:
        raise _error(name, "a reference must not contain another one")
    rules = _rules(allowed, variables)
    if provider == "env":
        text = _of_environment(rest, rules, variables, name)
    elif provider == "file":
        text = _of_file(rest, rules, name)
    else:
        raise _error(name, f"a reference can name env or file, not {for_log(provider)!r}")
    if is_reference(text.reveal()):
        raise _error(name, f"the target of {_reference(provider, rest)} is a reference again, which is not followed")
    return text.reveal()


def _rules(allowed: Sequence[str], variables: _Variables) -> list[str]:
    """Return the rules for references."""
    from_platform = variables.get(ALLOW_VARIABLE)
    listed = allowed if from_platform is None else from_platform.split(",")
    rules = [rule.strip() for rule in listed if rule.strip()]
    for rule in rules:
        if not _RULE.fullmatch(rule):
            source = "secretsAllow" if from_platform is None else ALLOW_VARIABLE
            raise _error(source, f"{for_log(rule)!r} is not a rule. Write env:NAME, env:PREFIX* or file:/directory/")
    return rules


def _of_environment(variable: str, rules: Sequence[str], variables: _Variables, name: str) -> Secret:
    if not _NAME.fullmatch(variable):
        raise _error(name, "the name after ${env: must consist of letters, digits and underscores")
    patterns = [rule.removeprefix("env:") for rule in rules if rule.startswith("env:")]
    if not any(variable.startswith(p[:-1]) if p.endswith("*") else variable == p for p in patterns):
        raise _not_allowed(name, f"env:{variable}", f"env:{variable}")
    value = variables.get(variable)
    if value is None:
        raise _error(
            name,
            f"{_reference('env', variable)} is not set in the environment of this process; with Spark, set it "
            "for the driver and the executors before Spark starts",
        )
    return Secret(value)


def _of_file(rest: str, rules: Sequence[str], name: str) -> Secret:
    path, _, key = rest.partition(":")
    reference = _reference("file", rest)
    if not re.fullmatch(r"/[^\0\ud800-\udfff]*", path, re.DOTALL):
        raise _error(name, "the path after ${file: must be absolute and valid")
    real = _real(path)
    if real is None:
        raise _error(name, f"{reference}: it cannot be read: a symbolic link in its path was removed meanwhile")
    directories = [_real(rule.removeprefix("file:")) for rule in rules if rule.startswith("file:")]
    if not any(directory is not None and real.startswith(directory.rstrip("/") + "/") for directory in directories):
        raise _not_allowed(name, f"file:{path}", f"file:{os.path.dirname(path).rstrip('/')}/")  # noqa: PTH120
    text, problem = _read(real)
    if problem:
        raise _error(name, f"{reference}: {problem}")
    if not key:
        return Secret(_without_last_newline(text))
    value = property_of(key, text)
    if value is None:
        del text
        raise _error(name, f"{reference}: the file has no such property")
    return Secret(value)


def read_secret_file(path: str, *, name: str) -> Secret:
    """Return the text of a file that the environment of the process names in the variable `name`, without white space around it.

    Raises:
        ConfigError: it cannot be read, is too large or empty. It has the attribute `fatal`.
    """
    real = _real(path)
    text, problem = _read(real) if real is not None else ("", "it cannot be read")
    text = text.strip()
    if problem or not text:
        raise _error(name, f"{for_log(path)}: {problem or 'it is empty'}")
    return Secret(text)


def _real(path: str) -> str | None:
    """Return the real path; None if a link changes while it is followed."""
    try:
        return os.path.realpath(path)
    except OSError:
        return None


def _read(path: str) -> tuple[str, str]:
    """Return the text of a file and its problem, one of which is empty. It does not block: a FIFO or device is not opened."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return "", "it is not a regular file"
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return "", "it is not a regular file"
            if not _is_at(descriptor, path):
                return "", "a directory in its path was replaced meanwhile"
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return "", f"it cannot be read: {error.strerror}"
    if len(content) > MAX_FILE_BYTES:
        return "", f"it is larger than {MAX_FILE_BYTES // 1024} KiB"
    try:
        return content.decode(), ""
    except UnicodeDecodeError:
        return "", "it is not UTF-8 text"


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether an open file is the one at `path`, as far as the system shows it. After a rule has allowed the path, another
    user with write access to one of its directories could have replaced it by a link.
    """
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") in (path, f"{path} (deleted)")  # noqa: PTH115  (not a path of a file)
    except OSError:
        return True  # there is no /proc


def _without_last_newline(text: str) -> str:
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _reference(provider: str, rest: str) -> str:
    return f"${{{provider}:{for_log(rest)}}}"


def _not_allowed(name: str, wanted: str, rule: str) -> ConfigError:
    return _error(
        name,
        f"references to {for_log(wanted)} are not allowed here. Add {for_log(rule)} to secretsAllow, or to "
        f"{ALLOW_VARIABLE} in the environment of driver and executors, which overrides it",
    )


def _error(name: str, rule: str) -> ConfigError:
    return ConfigError(f"{name}: {rule}", fatal=True)
