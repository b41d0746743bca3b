"""Hides the secrets that this process has sent in all texts from its peers, in any encoding.

A broker, a token endpoint or a registry may repeat a secret in an error text. Code that sends a secret calls `remember` first;
`escape.for_log`, which handles all texts from peers, calls `hide`.

A secret has too many encodings to search for each. Instead, a text is decoded in every possible way, and each result is searched
for the secret: percent and form encoding, quoted-printable, the escapes of JSON, C and HTML, lists of numbers, hexadecimal
digits, base64 and base32 in both alphabets of each, at every alignment, in lines, with padding or without. Results are decoded
again, for nested encodings.
The search ignores letter case, looks backwards too, and skips characters between the letters and digits of a secret.
"""

from __future__ import annotations

import binascii
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from spark_producer.common.secret import HIDDEN, Secret

MAX_TEXT: Final = 1024
"""Maximum number of characters of a text that are searched; the rest is truncated. Messages show 300."""

MAX_SECRETS: Final = 16
"""Maximum number of secrets that are remembered; the oldest is dropped. Tokens are renewed about every hour."""

MIN_PIECE: Final = 10
"""Minimum bytes of a piece of a secret that is hidden anywhere in a text: shorter pieces may be ordinary words."""

MIN_CUT_PIECE: Final = 3
"""Minimum bytes of the beginning or the end of a secret that are hidden where a text was truncated."""

MIN_LENGTH: Final = 4
"""Minimum bytes of a secret that is hidden alone. A shorter one hides its whole text, which would give it away otherwise."""

MIN_SQUEEZED: Final = 8
"""Minimum bytes of the letters and digits of a secret that are hidden with any characters between them: fewer may be the end of
one word and the beginning of the next."""

_MIN_LENGTH_OF_CUT: Final = 6
"""Minimum bytes of a secret whose pieces are hidden where a text was truncated."""

_MAX_DEPTH: Final = 3
"""Maximum depth of nested encodings."""

_MAX_BYTES: Final = 256 * 1024
"""Maximum bytes of all decoded forms of a text. A text with more is hidden completely."""

_CODED_RUN: Final = re.compile(rb"([A-Za-z0-9+/_-]{3,})={0,2}")
"""A run of digits that may be base64, in either alphabet (RFC 4648)."""

_STANDARD_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
_BASE32_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567abcdefghijklmnopqrstuvwxyz234567"
_BASE32_RUNS: Final = (
    (
        re.compile(rb"([A-Z2-7]{7,}|[a-z2-7]{7,})={0,6}"),
        bytes.maketrans(_BASE32_ALPHABET, 2 * b"0123456789abcdefghijklmnopqrstuv"),
    ),
    (re.compile(rb"([0-9A-V]{7,}|[0-9a-v]{7,})={0,6}"), None),
)
"""Runs of digits that may be base32 of four bytes or more, in the first alphabet of RFC 4648 and the extended one. Each has the
translation into the extended one, which is that of `int`."""

_WRAPPED_RUN: Final = re.compile(rb"[A-Za-z0-9+/_-]\r?\n[ \t]*(?=[A-Za-z0-9+/_=-])")
_LINE_END: Final = re.compile(rb"=?\r?\n[ \t]*")
_SEQUENCE: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
"""A control sequence of a terminal (ECMA-48), which it executes and does not show."""

_HEX_RUN: Final = re.compile(rb"[0-9A-Fa-f]{2}(?:[ :-]?[0-9A-Fa-f]{2}){2,}[0-9A-Fa-f]?")
_NUMBERS: Final = re.compile(rb"(?:0[xX][0-9A-Fa-f]{1,2}|-?\d{1,3})(?:[,; ]{1,2}(?:0[xX][0-9A-Fa-f]{1,2}|-?\d{1,3}))+")
_NUMBER: Final = re.compile(rb"0[xX][0-9A-Fa-f]{1,2}|-?\d{1,3}")
_PERCENT: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_QUOTED_PRINTABLE: Final = re.compile(rb"=([0-9A-Fa-f]{2})")
_FORM: Final = re.compile(rb"%([0-9A-Fa-f]{2})|\+")
_ENTITY: Final = re.compile(rb"&(?:#(\d{1,7})|#[xX]([0-9A-Fa-f]{1,6})|(amp|lt|gt|quot|apos));")
_ENTITIES: Final = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
_BACKSLASH: Final = re.compile(
    rb"\\(?:u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})"
    rb"|([0-7]{3})|([abfnrtv0\\/\"'`]))"
)
_BACKSLASHES: Final = dict(zip(b"abfnrtv0", b"\a\b\f\n\r\t\v\0", strict=True))

_PARTIAL_ESCAPE: Final = re.compile(
    rb"(?:%[0-9A-Fa-f]?|\\(?:u[0-9A-Fa-f]{0,3}|U[0-9A-Fa-f]{0,7}|x[0-9A-Fa-f]?|[0-7]{0,2})|&#?[a-zA-Z0-9]{0,6})\Z"
)
"""An escape that is truncated at the end of a text."""

_PARTIAL_BEGINNING: Final = re.compile(rb"[0-9A-Fa-f]{1,2}(?=%)|[uUx]?[0-9A-Fa-f]{1,7}(?=\\)|#?[a-zA-Z0-9]{0,6};(?=&)")
"""The rest of a truncated escape at the beginning of a text, before another escape."""

_CUT: Final = re.compile(rb"\.\.\.|\xe2\x80\xa6")
_QUOTES: Final = b"'\"`()[]{}<> \t\r\n"
_ALPHANUMERIC: Final = re.compile(rb"[0-9a-z]")
_BETWEEN: Final = bytes(byte for byte in range(0x80) if not chr(byte).isalnum())
"""The ASCII characters that the squeezed form of a text or secret lacks."""


class View(NamedTuple):
    """A text or a decoded form of it, as bytes, with the range of characters that each byte comes from."""

    data: bytes
    starts: list[int]
    ends: list[int]
    of_run: bool = False
    """Whether it was decoded from a run of digits. Ordinary words are such runs too, so it is probably nonsense."""


class Needle(NamedTuple):
    """Bytes to search for, with ASCII letters in lower case, and all pieces of them that are hidden."""

    data: bytes
    pieces: frozenset[bytes]


class SearchTerms(NamedTuple):
    """The search terms of a secret: its bytes; the same in other letter cases, normal forms and backwards; and the letters and
    digits of all of these."""

    exact: bytes
    whole: tuple[Needle, ...]
    squeezed: tuple[Needle, ...]


def _search_terms(secret: str) -> SearchTerms:
    exact = _folded(secret)
    if len(exact) < MIN_LENGTH:
        return SearchTerms(exact, (), ())
    spelled = {secret, secret.upper(), secret.lower(), secret.casefold(), secret.swapcase()}
    spelled |= {unicodedata.normalize(form, each) for each in spelled for form in ("NFC", "NFD")}
    whole = {_folded(text) for each in spelled for text in (each, each[::-1])}
    squeezed = {each.translate(None, _BETWEEN) for each in whole}
    return SearchTerms(exact, _needles(whole), _needles(each for each in squeezed if len(each) >= MIN_SQUEEZED))


def _needles(found: Iterable[bytes]) -> tuple[Needle, ...]:
    return tuple(Needle(each, frozenset(_pieces(each))) for each in sorted(found))


def _pieces(data: bytes) -> set[bytes]:
    """Return all pieces of `MIN_PIECE` bytes, or `data` itself if it is shorter."""
    return {data[at : at + MIN_PIECE] for at in range(max(1, len(data) - MIN_PIECE + 1))}


def _folded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").lower()


class SentSecrets:
    """The secrets that a process has sent. All methods are thread-safe: each step on the dictionary is atomic."""

    def __init__(self) -> None:
        self._secrets: dict[str, SearchTerms] = {}

    def add(self, secret: Secret) -> None:
        """Remember a secret; do nothing if it is empty."""
        if secret:
            text = secret.reveal()
            self._secrets[text] = _search_terms(text)
            for oldest in list(self._secrets)[:-MAX_SECRETS]:
                self._secrets.pop(oldest, None)

    def search_terms(self) -> list[SearchTerms]:
        """Return the search terms of all secrets."""
        return list(self._secrets.values())


_sent_secrets = SentSecrets()


def remember(secret: Secret) -> None:
    """Hide `secret` from now on in all texts from peers. Call it before the secret is sent."""
    _sent_secrets.add(secret)


def hide(text: str) -> str:
    """Return `text` with `***` in place of every secret that `remember` was called with; at most `MAX_TEXT` characters of it.

    Hidden are whole secrets in any encoding and letter case, backwards, and with other characters between their letters and
    digits; pieces of at least `MIN_PIECE` bytes; and the beginning or the end of a secret where the text begins or ends, or has
    an ellipsis.
    """
    secrets = _sent_secrets.search_terms()
    if not secrets:
        return text
    head = text[:MAX_TEXT]
    marks = _marks(head, secrets)
    if not marks:
        return text
    shown, at = [], 0
    for start, end in marks:
        shown += [head[at:start], HIDDEN]
        at = end
    return "".join(shown) + head[at:] + ("…" if len(text) > MAX_TEXT else "")


def _marks(text: str, secrets: list[SearchTerms]) -> list[tuple[int, int]]:
    """Return the ranges of `text` to hide, in order and disjoint."""
    found: list[tuple[int, int]] = []
    for view in _views(text):
        if view is None:
            return [(0, len(text))]
        if any(len(each.exact) < MIN_LENGTH and _stands_alone(view, each.exact) for each in secrets):
            return [(0, len(text))]
        data = view.data.lower()
        found += _text_ranges(view, _ranges(data, [needle for each in secrets for needle in each.whole]))
        for secret in secrets:
            if len(secret.exact) >= _MIN_LENGTH_OF_CUT:
                found += _text_ranges(view, _cut_pieces(data, secret.exact))
        letters = data.translate(None, _BETWEEN)
        ranges = list(_ranges(letters, [needle for each in secrets for needle in each.squeezed]))
        if ranges:
            kept = [at for at, byte in enumerate(data) if byte not in _BETWEEN]
            found += [(view.starts[kept[start]], view.ends[kept[end - 1]]) for start, end in ranges]
    return _merged(found)


def _text_ranges(view: View, ranges: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of the text that these ranges of a view come from."""
    return [(view.starts[start], view.ends[end - 1]) for start, end in ranges]


def _views(text: str) -> Iterator[View | None]:
    """Yield `text` and all decoded forms of it; then None if they exceed `_MAX_BYTES`."""
    level = [whole := _view_of(text), *_segments(whole), *_other_readings(text)]
    known: set[tuple[bytes, int, int]] = set()
    size = 0
    for depth in range(_MAX_DEPTH + 1):
        found = [each for view in level for each in _decoded(view)] if depth else level
        level = []
        for view in found:
            key = view.data, view.starts[0] if view.starts else 0, view.ends[-1] if view.ends else 0
            if key in known:
                continue
            known.add(key)
            size += len(view.data)
            if size > _MAX_BYTES:
                yield None
                return
            yield view
            level.append(view)


def _ranges(data: bytes, needles: list[Needle]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of `data` that hold a needle, or a piece of one."""
    present = _pieces(data)
    for needle in needles:
        size = len(needle.data)
        if not (needle.data in data if size < MIN_PIECE else present & needle.pieces):
            continue
        at, piece = 0, min(size, MIN_PIECE)
        while at <= len(data) - piece:
            end = at + piece
            if data[at:end] not in needle.pieces:
                at += 1
                continue
            while end < len(data) and data[at : end + 1] in needle.data:
                end += 1
            yield at, end
            at = end


def _cut_pieces(data: bytes, secret: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ranges where `data`, without quotes and brackets, begins with the secret's end or ends with its beginning."""
    start, end = len(data) - len(data.lstrip(_QUOTES)), len(data.rstrip(_QUOTES))
    sizes = range(min(len(secret), end - start), MIN_CUT_PIECE - 1, -1)
    for size in sizes:
        if data.endswith(secret[:size], start, end):
            yield end - size, end
            break
    for size in sizes:
        if data.startswith(secret[-size:], start, end):
            yield start, start + size
            break


def _stands_alone(view: View, secret: bytes) -> bool:
    """Return whether a short secret is a whole word of `view`; in a decoded run, whether it is the password of PLAIN or Basic."""
    data = view.data.lower()
    if view.of_run:
        return data.endswith((b"\0" + secret, b":" + secret)) or (data == secret and len(secret) > 1)
    at = data.find(secret)
    while at >= 0:
        neighbours = data[max(at - 1, 0) : at] + data[at + len(secret) : at + len(secret) + 1]
        if not _ALPHANUMERIC.search(neighbours):
            return True
        at = data.find(secret, at + 1)
    return False


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges in order, with adjacent and overlapping ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


# The ways to decode a text


def _view_of(text: str) -> View:
    if text.isascii():
        return View(text.encode(), list(range(len(text))), list(range(1, len(text) + 1)))
    pieces = [each.encode("utf-8", "surrogatepass") for each in text]
    starts = [at for at, piece in enumerate(pieces) for _ in piece]
    return View(b"".join(pieces), starts, [at + 1 for at in starts])


def _other_readings(text: str) -> Iterator[View]:
    """Yield a text without invisible characters, and the text if UTF-8 was mistaken for Latin-1 or Windows-1252."""
    if text.isascii():
        return
    seen = [at for at, each in enumerate(text) if unicodedata.category(each) not in ("Cf", "Cc", "Mn")]
    if len(seen) < len(text):
        visible = _view_of("".join(text[at] for at in seen))
        yield View(visible.data, [seen[at] for at in visible.starts], [seen[at - 1] + 1 for at in visible.ends])
    for codec in ("latin-1", "cp1252"):
        data = b"".join(each.encode(codec, "replace") for each in text)
        yield View(data, list(range(len(text))), list(range(1, len(text) + 1)))


def _segments(view: View) -> Iterator[View]:
    """Yield the segments between ellipses, where the text was truncated before."""
    at = 0
    for cut in [*_CUT.finditer(view.data), None] if _CUT.search(view.data) else ():
        end = cut.start() if cut else len(view.data)
        yield View(view.data[at:end], view.starts[at:end], view.ends[at:end])
        at = cut.end() if cut else end


def _decoded(view: View) -> Iterator[View]:
    """Yield all decoded forms of `view` after one step of decoding."""
    for pattern, decode in _ESCAPES:
        if pattern.search(view.data):
            yield (found := _unescaped(view, pattern, decode))
            if partial := _PARTIAL_BEGINNING.match(view.data):
                rest = len(found.data) - partial.end()
                yield View(found.data[-rest:], found.starts[-rest:], found.ends[-rest:], view.of_run)
    for pattern, gone in ((_WRAPPED_RUN, _LINE_END), (_SEQUENCE, _SEQUENCE)):
        if pattern.search(view.data):
            yield _unescaped(view, gone, lambda _: b"")
    for run in _NUMBERS.finditer(view.data):
        yield _of_run(view, run, bytes(int(each, 0) & 0xFF for each in _numbers(run[0])))
    for run in _HEX_RUN.finditer(view.data):
        digits = run[0].translate(None, b" :-")
        for skipped in range(2):
            pairs = digits[skipped : len(digits) - (len(digits) - skipped) % 2]
            yield _of_run(view, run, binascii.unhexlify(pairs))
    for run in _CODED_RUN.finditer(view.data):
        digits = run[1].translate(_STANDARD_ALPHABET)
        for skipped in range(4):
            size = len(digits) - skipped
            group = digits[skipped : len(digits) - (size % 4 == 1)]
            yield _of_run(view, run, binascii.a2b_base64(group + b"=" * (-len(group) % 4)))
    for pattern, translation in _BASE32_RUNS:
        for run in pattern.finditer(view.data):
            for data in _of_base32(run[1].translate(translation)):
                yield _of_run(view, run, data)


def _of_base32(digits: bytes) -> Iterator[bytes]:
    """Yield the bytes of digits in the extended alphabet, one result for each alignment with at least four bytes."""
    for skipped in range(min(8, len(digits) - 6)):
        bits = 5 * (len(digits) - skipped)
        yield (int(digits[skipped:], 32) >> bits % 8).to_bytes(bits // 8)


def _numbers(run: bytes) -> list[str]:
    """Return the numbers of a list in the notation in which Java and Go print bytes."""
    return [each if each[1:2] in "xX" else str(int(each)) for each in map(bytes.decode, _NUMBER.findall(run))]


def _of_run(view: View, run: re.Match[bytes], data: bytes) -> View:
    """Return the decoded form of a run of digits; each byte of it comes from the whole run."""
    start, end = view.starts[run.start()], view.ends[run.end() - 1]
    return View(data, [start] * len(data), [end] * len(data), of_run=True)


def _unescaped(view: View, pattern: re.Pattern[bytes], decode: Callable[[re.Match[bytes]], bytes]) -> View:
    """Return `view` with each escape replaced by its character."""
    pieces, starts, ends = [], list[int](), list[int]()
    at = 0
    for escape in pattern.finditer(view.data):
        character = decode(escape)
        pieces += [view.data[at : escape.start()], character]
        starts += view.starts[at : escape.start()] + [view.starts[escape.start()]] * len(character)
        ends += view.ends[at : escape.start()] + [view.ends[escape.end() - 1]] * len(character)
        at = escape.end()
    partial = _PARTIAL_ESCAPE.search(view.data, at)
    stop = partial.start() if partial else len(view.data)
    return View(
        b"".join([*pieces, view.data[at:stop]]), starts + view.starts[at:stop], ends + view.ends[at:stop], view.of_run
    )


def _of_percent(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)])


def _of_form(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)]) if escape[1] else b" "


def _of_entity(escape: re.Match[bytes]) -> bytes:
    if escape[3]:
        return _ENTITIES[escape[3]]
    return _character(int(escape[1]) if escape[1] else int(escape[2], 16))


def _of_backslash(escape: re.Match[bytes]) -> bytes:
    """Return the character of an escape in a text, where `\\xe9` is é."""
    high, low, short, long, two, octal, letter = escape.groups()
    if high:
        return _character(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if short or long or two:
        return _character(int(short or long or two, 16))
    return _character(int(octal, 8)) if octal else bytes([_BACKSLASHES.get(letter[0], letter[0])])


def _of_backslash_in_bytes(escape: re.Match[bytes]) -> bytes:
    """Return the character of an escape in the representation of bytes, where `\\xe9` and `\\351` are one byte."""
    two, octal = escape[5], escape[6]
    return bytes([int(two, 16) if two else int(octal, 8) & 0xFF]) if two or octal else _of_backslash(escape)


def _character(number: int) -> bytes:
    return chr(number).encode("utf-8", "surrogatepass") if number <= 0x10FFFF else b"?"


_ESCAPES: Final = (
    (_PERCENT, _of_percent),
    (_QUOTED_PRINTABLE, _of_percent),
    (_FORM, _of_form),
    (_ENTITY, _of_entity),
    (_BACKSLASH, _of_backslash),
    (_BACKSLASH, _of_backslash_in_bytes),
)
