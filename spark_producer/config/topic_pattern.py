"""Regular expressions for names of topics: the syntax that Java and Python share, checked construct by construct.

Spark's source reads a pattern with Java's `java.util.regex.Pattern`, this one with Python's `re`. A construct that only one of
them has, or that they read differently, is refused by name, so that no topic is read or left out by mistake. Names of topics are
ASCII without line ends, for which `.`, `^`, `$`, `\\w`, `\\d`, `\\s` and `\\b` mean the same in both.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

from spark_producer.errors import ConfigError

_BOTH_READ: Final = frozenset("dDwWsS")
"""Letters of the escapes for sets of characters, inside classes too."""
_CONTROL: Final = frozenset("tnrfa")
"""Letters of the escapes for control characters."""
_POSITIONS: Final = frozenset("bBA")
_REFERENCES: Final = frozenset("123456789")
_CODE = re.compile(r"x[0-7][0-9A-Fa-f]|u00[0-7][0-9A-Fa-f]")
"""The code of an ASCII character."""
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_GROUP = re.compile(r"\((?:\?(?::|=|!|<=|<!|[ims]+:))?(?!\?)")
_FLAGS = re.compile(r"\(\?[ims]+\)")
_LITERAL_DOUBLES: Final = ("&&", "--", "||", "~~")
"""Pairs of characters in a class that Java or Python reads as an operation on sets, or will in a later version."""

_UNSHARED_ESCAPES: Final = {
    "Q": r"quoting (\Q…\E)",
    "E": r"quoting (\Q…\E)",
    "p": r"a class of Unicode (\p{…})",
    "P": r"a class of Unicode (\P{…})",
    "k": r"a reference to a named group (\k<…>)",
    "N": r"a character by its name (\N{…})",
    "0": r"an octal code (\0)",
    "c": r"a control character (\c)",
}
_UNSHARED_GROUPS: Final = {
    "<": "a named group ((?<…>…))",
    "P": "a named group ((?P<…>…))",
    ">": "an atomic group ((?>…))",
    "#": "a comment ((?#…))",
    "(": "a condition ((?(…)…))",
}


class _Unshared(Exception):
    """A construct of the pattern that Java and Python do not share: `what` it is, and its position `at`."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what, at)
        self.what, self.at = what, at


class _Token(NamedTuple):
    """One construct: where it ends, and whether a quantifier may follow."""

    end: int
    repeatable: bool


def check_pattern(option: str, pattern: str) -> None:
    """Refuse a pattern that Python does not read as Java does.

    Raises:
        ConfigError: it is empty, it is no regular expression, or it has a construct that is not shared. The message names it.
    """
    if not pattern:
        raise ConfigError(f"{option} is empty. Give a regular expression, such as orders-.*")
    try:
        _check_constructs(pattern)
        re.compile(pattern)
    except _Unshared as error:
        raise ConfigError(
            f"{option} has {error.what} at character {error.at + 1} of {pattern!r}, which Java and Python do not read alike. "
            "Write the pattern without it, or name the topics in subscribe"
        ) from None
    except (re.error, OverflowError, RecursionError) as error:
        why = str(error) or type(error).__name__
        hint = ". In a regular expression .* stands for any text" if pattern.startswith("*") else ""
        raise ConfigError(f"{option} is not a regular expression: {why}, in {pattern!r}{hint}. Correct it") from None


def _check_constructs(pattern: str) -> None:
    """Walk over the constructs of a pattern.

    Raises:
        _Unshared: one of them is not shared.
    """
    flags = _FLAGS.match(pattern)
    at, repeatable = flags.end() if flags else 0, False
    while at < len(pattern):
        if quantifier := _QUANTIFIER.match(pattern, at):
            if not repeatable and at:
                _refuse(f"a quantifier after nothing that it could repeat ({quantifier.group()})", at)
            if pattern.startswith("+", quantifier.end()):
                _refuse(f"a possessive quantifier ({quantifier.group()}+)", at)
            at, repeatable = quantifier.end(), False
        else:
            at, repeatable = _construct(pattern, at)


def _construct(pattern: str, at: int) -> _Token:
    character = pattern[at]
    if character == "\\":
        return _escape(pattern, at)
    if character == "[":
        return _Token(_class(pattern, at), True)
    if character == "(":
        return _group(pattern, at)
    if character == "{":
        _refuse("a { that begins no quantifier", at)
    if not character.isascii():
        _refuse(f"{character!r}, which no name of a topic has,", at)
    return _Token(at + 1, character not in "^$|")


def _escape(pattern: str, at: int) -> _Token:
    letter = pattern[at + 1 : at + 2]
    if letter in _REFERENCES and letter:
        if pattern[at + 2 : at + 3].isdecimal():
            _refuse("a reference to a group with a digit after it", at)
        return _Token(at + 2, True)
    if letter in _POSITIONS and letter:
        return _Token(at + 2, False)
    return _Token(_character(pattern, at), True)


def _character(pattern: str, at: int) -> int:
    """Return the end of an escape that stands for a character or a set of them, inside of classes and outside."""
    letter = pattern[at + 1 : at + 2]
    if code := _CODE.match(pattern, at + 1):
        return code.end()
    if not letter or not letter.isascii() or (letter.isalnum() and letter not in _BOTH_READ | _CONTROL):
        _refuse(_UNSHARED_ESCAPES.get(letter, f"the escape \\{letter}"), at)
    return at + 2


def _class(pattern: str, at: int) -> int:
    """Return the end of a class, `[…]`."""
    begin = position = at + (2 if pattern.startswith("[^", at) else 1)
    while not pattern.startswith("]", position):
        character = pattern[position : position + 1]
        if not character:
            raise re.error("unterminated character set", pattern, at)
        if character == "[":
            _refuse("a class in a class ([…[…]])", position)
        if pattern[position : position + 2] in _LITERAL_DOUBLES:
            _refuse(f"{pattern[position : position + 2]} in a class", position)
        if not character.isascii():
            _refuse(f"{character!r}, which no name of a topic has,", position)
        position = _character(pattern, position) if character == "\\" else position + 1
    if position == begin:
        _refuse("a class that begins with ]", position)
    return position + 1


def _group(pattern: str, at: int) -> _Token:
    group = _GROUP.match(pattern, at)
    if group is None:
        flags = "flags in mid-pattern, or other flags than i, m and s ((?…))"
        _refuse(_UNSHARED_GROUPS.get(pattern[at + 2 : at + 3], flags), at)
    return _Token(group.end(), False)


def _refuse(what: str, at: int) -> NoReturn:
    raise _Unshared(what, at)
