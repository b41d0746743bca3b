"""Parses the text of `sasl.jaas.config` by a strict grammar: one login module, a flag, and its options.

    CLASS required|requisite|sufficient|optional (KEY=VALUE)* ;

A value is bare (ASCII letters, digits and `._-$`) or in quotes, with `\\"`, `\\'` and `\\\\`. Java loads the named class, which
was a way to run code on other machines (CVE-2023-25194); here five class names are known, and none is loaded. An error has the
position and the known names. It never shows the text, since any part of it may be part of a password.

The scanner reads each character once, so the time is linear in the length of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.common.secret import Secret
from spark_producer.config.references import has_no_kind, has_reference, is_reference
from spark_producer.errors import ConfigError

NAME = "kafka.sasl.jaas.config"

MAX_LENGTH = 65_536
"""Maximum length of the text in characters; a few hundred are usual."""

PLAIN, SCRAM, OAUTH, IAM = "PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule", "IAMLoginModule"
KRB5 = "Krb5LoginModule"

_AWS_KEYS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
KEYS: Mapping[str, tuple[str, ...]] = {
    PLAIN: ("username", "password"),
    SCRAM: ("username", "password", "tokenauth"),
    OAUTH: ("clientId", "clientSecret", "scope", *_AWS_KEYS),
    IAM: _AWS_KEYS,
    KRB5: (
        "useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName",
        # These say nothing of a client: it has no prompt, and reads krb5.conf and the ticket cache again for each new ticket.
        "storeKey", "doNotPrompt", "refreshKrb5Config", "renewTGT", "isInitiator", "debug",
    ),
}  # fmt: skip
"""The options of each login module. OAuthBearerLoginModule also accepts `extension_NAME`."""

_REFERABLE = ("username", "password", "clientId", "clientSecret")
"""The options whose values may be references, which are resolved at login; the others are not secret."""

_SECRETS = ("password", "clientSecret")

EXTENSION = "extension_"

_CLASSES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": PLAIN,
    "org.apache.kafka.common.security.scram.ScramLoginModule": SCRAM,
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": OAUTH,
    "software.amazon.msk.auth.iam.IAMLoginModule": IAM,
    "com.sun.security.auth.module.Krb5LoginModule": KRB5,
}
_SHADED = ("kafkashaded.", "shadedmskiam.", "org.apache.kafka.shaded.")
"""Prefixes under which platforms relocate (shade) the packages of their Kafka and MSK clients."""
_KAFKA = "org.apache.kafka."

_FLAGS = ("required", "requisite", "sufficient", "optional")
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-$")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SPACE = frozenset(" \t\r\n\f")
_ESCAPED = frozenset("\"'\\")


class JaasEntry(NamedTuple):
    """A parsed text. `module` is the name of a login module without its package; values may be references."""

    module: str
    options: Mapping[str, Secret]


def parse_jaas(text: Secret, *, references: bool = True) -> JaasEntry:
    """Return the parsed text. Without `references`, values that are references are refused, as in a text that a reference named.

    Raises:
        ConfigError: the text does not follow the grammar; the message has the position of the error.
    """
    entry = _read(text.reveal(), references)
    if isinstance(entry, str):
        raise ConfigError(f"{NAME} cannot be parsed {entry}")
    return entry


def original_class_names(name: str) -> list[str]:
    """Return the names that a Java class may have had before a platform relocated its package; `name` itself is the first."""
    names = [name]
    for prefix in _SHADED:
        if name.startswith(prefix):
            names += [name.removeprefix(prefix), _KAFKA + name.removeprefix(prefix)]
    return names


class _SyntaxError(Exception):
    """The text does not follow the grammar at a position."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at character {position + 1}: {reason}")


def _read(text: str, references: bool) -> JaasEntry | str:
    """Return the entry, or an error message. It is not raised from here: a traceback could show local variables with the text."""
    try:
        return _entry(_Scanner(text, references))
    except _SyntaxError as error:
        return str(error)


def _entry(scanner: _Scanner) -> JaasEntry:
    if len(scanner.text) > MAX_LENGTH:
        raise _SyntaxError(MAX_LENGTH, f"a text has at most {MAX_LENGTH} characters")
    module = _module(scanner)
    position, flag = scanner.bare_text(f"the flag is missing; it is one of {', '.join(_FLAGS)}")
    if flag.lower() not in _FLAGS:
        raise _SyntaxError(position, f"the flag is unknown; it is one of {', '.join(_FLAGS)}")
    options: dict[str, Secret] = {}
    while not scanner.accept(";"):
        if scanner.at_end:
            raise _SyntaxError(scanner.position, "the semicolon at the end is missing")
        position, key = scanner.bare_text("key=value or the final semicolon is missing")
        _check_key(position, key, module)
        if key in options:
            raise _SyntaxError(position, f"{_shown_key(key)} is given twice")
        if not scanner.accept("="):
            raise _SyntaxError(scanner.position, f"{_shown_key(key)} has no value. Write = and the value after it")
        options[key] = scanner.value(key)
    scanner.skip_space()
    if not scanner.at_end:
        raise _SyntaxError(scanner.position, "text follows the semicolon. Give one login module only")
    return JaasEntry(module, options)


def _module(scanner: _Scanner) -> str:
    known = f"the login modules are {', '.join(KEYS)}, with their packages"
    position, name = scanner.bare_text(f"the class of a login module is missing; {known}")
    for candidate in original_class_names(name):
        if candidate in _CLASSES:
            return _CLASSES[candidate]
    raise _SyntaxError(position, f"the class is unknown, and Java classes cannot run here; {known}")


def _check_key(position: int, key: str, module: str) -> None:
    if key in KEYS[module]:
        return
    extension = key.removeprefix(EXTENSION)
    if module == OAUTH and key != extension and extension and _LETTERS.issuperset(extension):
        return
    also = f" and {EXTENSION}NAME" if module == OAUTH else ""
    raise _SyntaxError(position, f"{module} has no such option; it accepts {', '.join(KEYS[module])}{also}")


def _shown_key(key: str) -> str:
    """Return a key for messages, without the name of an extension, which may be secret."""
    return f"{EXTENSION}…" if key.startswith(EXTENSION) else key


class _Scanner:
    """A text and the position of the next character."""

    def __init__(self, text: str, references: bool) -> None:
        self.text = text
        self.position = 0
        self._references = references

    @property
    def at_end(self) -> bool:
        """Whether all characters are read."""
        return self.position >= len(self.text)

    def skip_space(self) -> None:
        while self.position < len(self.text) and self.text[self.position] in _SPACE:
            self.position += 1

    def accept(self, character: str) -> bool:
        """Read the next character if it is `character`; return whether it was."""
        self.skip_space()
        found = self.text[self.position : self.position + 1] == character
        self.position += found
        return found

    def bare_text(self, missing: str) -> tuple[int, str]:
        """Read a bare text; return its position and itself. Raises `_SyntaxError` with `missing` if there is none."""
        self.skip_space()
        begin = self.position
        while self.position < len(self.text) and self.text[self.position] in _BARE:
            self.position += 1
        if self.position == begin:
            raise _SyntaxError(begin, missing)
        return begin, self.text[begin : self.position]

    def value(self, key: str) -> Secret:
        self.skip_space()
        begin = self.position
        quote = self.text[begin : begin + 1]
        if quote not in ('"', "'"):
            _, bare = self.bare_text(f"the value of {_shown_key(key)} is missing, or needs quotes")
            return Secret(bare)
        self.position += 1
        value = self._quoted(begin, quote, key)
        if has_reference(value):
            self._check_reference(begin, key, value)
        elif self._references and key in _SECRETS and has_no_kind(value):
            raise _SyntaxError(
                begin, f"the value of {_shown_key(key)} is ${{…}} without a kind. Write ${{env:NAME}} for a variable"
            )
        return Secret(value)

    def _check_reference(self, begin: int, key: str, value: str) -> None:
        if not self._references:
            why = "cannot be resolved in a text that came from a reference itself"
        elif key not in _REFERABLE:
            why = f"is allowed for {', '.join(_REFERABLE)} only"
        elif not is_reference(value):
            why = "must be the whole value in its quotes: ${env:NAME}, ${file:/path} or ${file:/path:key}"
        else:
            return
        raise _SyntaxError(begin, f"the value of {_shown_key(key)} has a reference, which {why}")

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
                    raise _SyntaxError(
                        self.position - 1, f"the value of {_shown_key(key)} has a single backslash. Write it twice"
                    )
                self.position += 1
            parts.append(character)
        raise _SyntaxError(begin, f"the quotes of the value of {_shown_key(key)} are not closed on their line")
