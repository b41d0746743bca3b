"""Patterns of topics and names to try them on, for tests without and with Java."""

from __future__ import annotations

import random

NAMES = (
    "a",
    "b",
    "A",
    "ab",
    "ba",
    "aab",
    "a.b",
    "a-b",
    "a_b",
    "a1",
    "1",
    "orders",
    "Orders-1",
    "orders.x",
    "__x",
    "-",
    ".a",
    "K",
)

SHARED = (
    "orders", "orders.*", "^orders-[0-9]+$", "(orders|payments)\\..*", "a{2}b", "a{1,}", "a{0,2}?b", "(?i)ORDERS", "(?s)a.b",
    "(?i:A)b", "(?:ab)+", "a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", "[a-c]", "[^a-c]", "[.-]", "[-a]", "[a^]", "[a&b]",
    "[\\w.]", "[^\\W_]", "[\\]\\[]", "[$(){}*+?|]", "\\d\\D\\w\\W\\s\\S?", "\\ba", "\\Aa\\B", "\\.", "\\-", "\\_",
    "\\x61", "\\u0061", "[\\x61-c]", "(a)\\1", "a|b|", "", "}", "]", "a]", "~#, /",
)  # fmt: skip
"""Constructs that Java and Python read alike; the empty one only within a longer pattern."""

UNSHARED = {
    "\\Qa.b\\E": "quoting (\\Q…\\E)",
    "\\p{Lower}+": "a class of Unicode (\\p{…})",
    "\\P{L}": "a class of Unicode (\\P{…})",
    "(?<name>a)": "a named group ((?<…>…))",
    "(?P<name>a)": "a named group ((?P<…>…))",
    "(a)\\k<name>": "a reference to a named group (\\k<…>)",
    "(?>a)b": "an atomic group ((?>…))",
    "a++": "a possessive quantifier (++)",
    "a?+": "a possessive quantifier (?+)",
    "a{2}+": "a possessive quantifier ({2}+)",
    "[a&&[^b]]": "&& in a class",
    "[a-c[x-z]]": "a class in a class ([…[…]])",
    "[a||b]": "|| in a class",
    "[a--b]": "-- in a class",
    "[]a]": "a class that begins with ]",
    "[^]a]": "a class that begins with ]",
    "[\\b]": "the escape \\b",
    "\\h": "the escape \\h",
    "\\v": "the escape \\v",
    "\\R": "the escape \\R",
    "\\X": "the escape \\X",
    "\\G": "the escape \\G",
    "\\Z": "the escape \\Z",
    "\\z": "the escape \\z",
    "\\e": "the escape \\e",
    "\\cA": "a control character (\\c)",
    "\\0101": "an octal code (\\0)",
    "\\N{DOT}": "a character by its name (\\N{…})",
    "\\xe9": "the escape \\x",
    "a\\": "the escape \\",
    "(a)\\11": "a reference to a group with a digit after it",
    "a(?i)b": "flags in mid-pattern, or other flags than i, m and s ((?…))",
    "(?x)a b": "flags in mid-pattern, or other flags than i, m and s ((?…))",
    "(?-i)a": "flags in mid-pattern, or other flags than i, m and s ((?…))",
    "(?#text)a": "a comment ((?#…))",
    "(a)?(?(1)b|c)": "a condition ((?(…)…))",
    "a{,3}": "a { that begins no quantifier",
    "{": "a { that begins no quantifier",
    "a{2}{3}": "a quantifier after nothing that it could repeat ({3})",
    "^*": "a quantifier after nothing that it could repeat (*)",
    "a|+": "a quantifier after nothing that it could repeat (+)",
    "öl.*": "'ö', which no name of a topic has,",
    "[ö]": "'ö', which no name of a topic has,",
}
"""Constructs that are refused, with their names in the message."""

WRONG = ("*", "*-orders", "(a", "a)", "[a", "[b-a]", "(?<=a*)b", "(a\\1)", "\\1", "a{3,2}", "a{9999999999999}")
"""Patterns that are refused because Python cannot compile them, whatever Java does."""


def random_patterns(count: int, seed: int) -> list[str]:
    """Different patterns of one to six pieces, many of them wrong or unshared."""
    draw = random.Random(seed)
    pieces = [
        *SHARED,
        *UNSHARED,
        *"abAB01.()|*+?^$-_",
        "(?i:",
        "(?=",
        "(?<!",
        "??",
        "*?",
        "[a-z]",
        "[^A-b]",
        "{2}",
        "\\w",
    ]
    found = {"".join(draw.choice(pieces) for _ in range(draw.randint(1, 6))) for _ in range(count)}
    return sorted(found - {""})
