"""Secrets that somebody gave on the command line, where no argument takes any: no message may repeat them.

They are found by the names that they were given to, also misspelt: what is no option of ours may have been meant as a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise

from spark_producer.escape import for_log
from spark_producer.secret import HIDDEN

_SECRET_WORDS = re.compile(
    r"pass?w|passphrase|pwd|passwd|secret|token|jaas|credential|user[._-]?info|api[._-]?key|(keystore|truststore|private|ssl)[._-]?key"
)
"""Words in the names of options whose values are secrets, in this project's table and in those of other clients."""

_NAMES = (
    "sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.keystore.key", "ssl.keystore.password",
    "ssl.truststore.password", "sasl.oauthbearer.client.secret", "basic.auth.user.info", "password", "token", "secret",
)  # fmt: skip
"""What a misspelt name may have meant."""

_MIN_SIMILARITY = 0.8
_MIN_LENGTH = 4
"""A secret of fewer characters is hidden only behind its name: elsewhere it is a part of many words."""

_PAIR = re.compile(r"(?P<name>[\w.\-]*[\w\-])(?P<between>\s*[=:]\s*|\s+)", re.ASCII)


class GivenSecrets:
    """The values of arguments that are probably secrets, and texts without them."""

    def __init__(self, given: Sequence[str] = ()) -> None:
        found = {word: None for argument in given for word in _values(argument)}
        for flag, argument in pairwise(given):
            if flag.startswith("-") and "=" not in flag and is_secret_name(flag):
                found[argument] = None
        self._values = sorted(filter(None, found), key=len, reverse=True)

    def without(self, text: str) -> str:
        """Return `text` with `***` for each of them, as it was given or with the escapes of a message."""
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
    return bool(_SECRET_WORDS.search(bare) or get_close_matches(bare, _NAMES, n=1, cutoff=_MIN_SIMILARITY))


def _values(argument: str) -> Iterator[str]:
    """Yield what stands behind the first name of a secret in an argument, as in `--option=sasl.password=…`."""
    for pair in _PAIR.finditer(argument):
        if is_secret_name(pair["name"]):
            value = argument[pair.end() :]
            if value:
                yield value
                yield value.partition("=")[0].strip()  # what `NAME=VALUE` took for the end of the name
            return
