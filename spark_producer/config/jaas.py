"""The text of `sasl.jaas.config`, read by a strict grammar: one login module, a flag, and its options.

    CLASS required|requisite|sufficient|optional (KEY=VALUE)* ;

A value is bare (ASCII letters, digits and `._-$`) or in quotes, with `\\"`, `\\'` and `\\\\`. Java loads the class that stands
there, which was a way to run code on the machines of others (CVE-2023-25194); here four names are known, and none is loaded. An
error says where it is and which names are known. It never shows the text, since any word of it may be part of a password.

The scanner looks at each character once, so no text makes it slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.common.secret import Secret
from spark_producer.config.references import has_reference, is_reference, lacks_kind
from spark_producer.config.unsupported import KERBEROS
from spark_producer.errors import ConfigError

NAME = "kafka.sasl.jaas.config"

LONGEST = 65_536
"""Characters. A text of a few hundred is usual."""

PLAIN, SCRAM, OAUTH, IAM = "PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule", "IAMLoginModule"

_AWS_KEYS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
KEYS: Mapping[str, tuple[str, ...]] = {
    PLAIN: ("username", "password"),
    SCRAM: ("username", "password", "tokenauth"),
    OAUTH: ("clientId", "clientSecret", "scope", *_AWS_KEYS),
    IAM: _AWS_KEYS,
}
"""The options of each login module. OAuthBearerLoginModule also takes `extension_NAME`."""

_REFERABLE = ("username", "password", "clientId", "clientSecret")
"""The options whose values are resolved where a login begins; the others are no secrets."""

_SECRETS = ("password", "clientSecret")

EXTENSION = "extension_"

_CLASSES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": PLAIN,
    "org.apache.kafka.common.security.scram.ScramLoginModule": SCRAM,
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": OAUTH,
    "software.amazon.msk.auth.iam.IAMLoginModule": IAM,
}
_SHADED = ("kafkashaded.", "shadedmskiam.", "org.apache.kafka.shaded.")
"""How platforms rename the packages of the Kafka and MSK clients that they bring."""
_KAFKA = "org.apache.kafka."

_FLAGS = ("required", "requisite", "sufficient", "optional")
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-$")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SPACE = frozenset(" \t\r\n\f")
_ESCAPED = frozenset("\"'\\")


class JaasEntry(NamedTuple):
    """What a text says. `module` is the name of a login module without its package; values may be references."""

    module: str
    options: Mapping[str, Secret]


def parse_jaas(text: Secret, *, references: bool = True) -> JaasEntry:
    """Read a text; without `references`, a value that is one is refused (the text came from a reference itself).

    Raises:
        ConfigError: the text does not follow the grammar. It says at which character.
    """
    entry = _read(text.reveal(), references)
    if isinstance(entry, str):
        raise ConfigError(f"{NAME} is wrong {entry}")
    return entry


def original_class_names(name: str) -> list[str]:
    """Return the names that a Java class may have had before a platform renamed its package; its own is the first."""
    names = [name]
    for prefix in _SHADED:
        if name.startswith(prefix):
            names += [name.removeprefix(prefix), _KAFKA + name.removeprefix(prefix)]
    return names


class _Refused(Exception):
    """The text is wrong at a place, for a reason."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at character {position + 1}: {reason}")


def _read(text: str, references: bool) -> JaasEntry | str:
    """Return the entry, or what is wrong, as a value: the local variables here have the text, and no traceback shall."""
    try:
        return _entry(_Scanner(text, references))
    except _Refused as refused:
        return str(refused)


def _entry(scanner: _Scanner) -> JaasEntry:
    if len(scanner.text) > LONGEST:
        raise _Refused(LONGEST, f"a text has at most {LONGEST} characters")
    module = _module(scanner)
    position, flag = scanner.word(f"a flag is missing, one of {', '.join(_FLAGS)}")
    if flag.lower() not in _FLAGS:
        raise _Refused(position, f"this is no flag; it is one of {', '.join(_FLAGS)}")
    options: dict[str, Secret] = {}
    while not scanner.takes(";"):
        if scanner.at_end:
            raise _Refused(scanner.position, "the semicolon at the end is missing")
        position, key = scanner.word("the entry ends with a semicolon, and key=value stand before it")
        _check_key(position, key, module)
        if key in options:
            raise _Refused(position, f"{_told(key)} is there twice")
        if not scanner.takes("="):
            raise _Refused(scanner.position, f"{_told(key)} is followed by = and its value")
        options[key] = scanner.value(key)
    scanner.skip_space()
    if not scanner.at_end:
        raise _Refused(scanner.position, "there is something after the semicolon; one login module is all")
    return JaasEntry(module, options)


def _module(scanner: _Scanner) -> str:
    known = f"the login modules are {', '.join(KEYS)}, with their packages"
    position, name = scanner.word(f"it begins with the class of a login module; {known}")
    for candidate in original_class_names(name):
        if candidate in _CLASSES:
            return _CLASSES[candidate]
    if name.endswith("Krb5LoginModule"):
        raise _Refused(position, KERBEROS)
    raise _Refused(position, f"this class is not known, and no Java class can run here; {known}")


def _check_key(position: int, key: str, module: str) -> None:
    if key in KEYS[module]:
        return
    extension = key.removeprefix(EXTENSION)
    if module == OAUTH and key != extension and extension and _LETTERS.issuperset(extension):
        return
    also = f" and {EXTENSION}NAME" if module == OAUTH else ""
    raise _Refused(position, f"{module} has no such option; it takes {', '.join(KEYS[module])}{also}")


def _told(key: str) -> str:
    """Return a key as a message may name it: an extension's name is the user's own."""
    return f"{EXTENSION}…" if key.startswith(EXTENSION) else key


class _Scanner:
    """A text and how far it was read."""

    def __init__(self, text: str, references: bool) -> None:
        self.text = text
        self.position = 0
        self._references = references

    @property
    def at_end(self) -> bool:
        """Whether nothing is left to read."""
        return self.position >= len(self.text)

    def skip_space(self) -> None:
        while self.position < len(self.text) and self.text[self.position] in _SPACE:
            self.position += 1

    def takes(self, character: str) -> bool:
        """Whether this character comes next; then it is read."""
        self.skip_space()
        found = self.text[self.position : self.position + 1] == character
        self.position += found
        return found

    def word(self, missing: str) -> tuple[int, str]:
        """Read a bare word, and return where it begins, too."""
        self.skip_space()
        begin = self.position
        while self.position < len(self.text) and self.text[self.position] in _WORD:
            self.position += 1
        if self.position == begin:
            raise _Refused(begin, missing)
        return begin, self.text[begin : self.position]

    def value(self, key: str) -> Secret:
        self.skip_space()
        begin = self.position
        quote = self.text[begin : begin + 1]
        if quote not in ('"', "'"):
            _, bare = self.word(f"the value of {_told(key)} is missing, or needs quotes")
            return Secret(bare)
        self.position += 1
        value = self._quoted(begin, quote, key)
        if has_reference(value):
            self._check_reference(begin, key, value)
        elif self._references and key in _SECRETS and lacks_kind(value):
            raise _Refused(
                begin, f"the value of {_told(key)} is ${{…}} without a kind: write ${{env:NAME}} for a variable"
            )
        return Secret(value)

    def _check_reference(self, begin: int, key: str, value: str) -> None:
        if not self._references:
            why = "cannot stand in a text that a reference gave"
        elif key not in _REFERABLE:
            why = f"only the values of {', '.join(_REFERABLE)} can be"
        elif not is_reference(value):
            why = "is the whole value in its quotes, ${env:NAME}, ${file:/path} or ${file:/path:key}"
        else:
            return
        raise _Refused(begin, f"the value of {_told(key)} has a reference, which {why}")

    def _quoted(self, begin: int, quote: str, key: str) -> str:
        parts: list[str] = []
        while self.position < len(self.text):
            character = self.text[self.position]
            self.position += 1
            if character == quote:
                return "".join(parts)
            if character in "\r\n":
                break
            if character == "\\":
                character = self.text[self.position : self.position + 1]
                if character not in _ESCAPED or not character:
                    raise _Refused(
                        self.position - 1, f"a backslash in quotes is written twice (the value of {_told(key)})"
                    )
                self.position += 1
            parts.append(character)
        raise _Refused(begin, f"the quotes of the value of {_told(key)} do not end on their line")
