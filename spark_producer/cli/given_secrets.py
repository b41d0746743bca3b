"""Secrets among the arguments of the command line, where they do not belong: no message may repeat them.

They are found by the names before them, including misspelt ones: an unknown option may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise

from spark_producer.common.escape import for_log
from spark_producer.common.secret import HIDDEN

_SECRET_NAMES = re.compile(
    r"pass?w|passphrase|pwd|passwd|secret|token|jaas|credential|user[._-]?info|api[._-]?key|(keystore|truststore|private|ssl)[._-]?key"
)
"""Parts of the names of options whose values are secrets, in this project's table and in those of other clients."""

_NAMES = (
    "sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.keystore.key", "ssl.keystore.password",
    "ssl.truststore.password", "sasl.oauthbearer.client.secret", "basic.auth.user.info", "password", "token", "secret",
)  # fmt: skip
"""The names that a misspelt one is compared with."""

_MIN_SIMILARITY = 0.8
_MIN_LENGTH = 4
"""The minimum characters of a secret that is hidden everywhere; a shorter one is hidden only after its name."""

_PAIR = re.compile(r"(?P<name>[\w.\-]*[\w\-])(?P<between>\s*[=:]\s*|\s+)", re.ASCII)


class GivenSecrets:
    """Masks, in any text, the values of command line arguments that are probably secrets."""

    def __init__(self, given: Sequence[str] = ()) -> None:
        found = {value: None for argument in given for value in _secret_values(argument)}
        for flag, argument in pairwise(given):
            if flag.startswith("-") and "=" not in flag and is_secret_name(flag):
                found[argument] = None
        self._values = sorted(filter(None, found), key=len, reverse=True)

    def without(self, text: str) -> str:
        """Return `text` with `***` in place of each secret, as it was given or with the escapes of a message."""
        for value in self._values:
            for form in {value, for_log(value, limit=None), repr(value)[1:-1], value.lower()}:
                if len(form) >= _MIN_LENGTH:
                    text = text.replace(form, HIDDEN)
                else:
                    text = re.sub(rf"(?<=[=: '\"]){re.escape(form)}(?![\w])", lambda _: HIDDEN, text)
        return text


def is_secret_name(name: str) -> bool:
    """Return whether the value of an option of this name is a secret, even if the name is misspelt."""
    bare = name.lower().strip("-").removeprefix("kafka.").removeprefix("schema.registry.")
    return bool(_SECRET_NAMES.search(bare) or get_close_matches(bare, _NAMES, n=1, cutoff=_MIN_SIMILARITY))


def without_values(arguments: Iterable[str]) -> Iterator[str]:
    """Yield unknown arguments with … in place of their values, because any of them may be a password."""
    after_flag = False
    for argument in arguments:
        is_flag = argument.startswith("-")
        name, equals, _ = argument.partition("=")
        if equals:
            yield f"{name}=…"
        else:
            yield "…" if after_flag and not is_flag else argument
        after_flag = is_flag and not equals


def _secret_values(argument: str) -> Iterator[str]:
    """Yield the value after the first name of a secret in an argument, as in `--option=sasl.password=…`."""
    for pair in _PAIR.finditer(argument):
        if is_secret_name(pair["name"]):
            value = argument[pair.end() :]
            if value:
                yield value
                yield value.partition("=")[
                    0
                ].strip()  # `NAME=VALUE` is cut at the first =, and a message may show the part before it
            return
