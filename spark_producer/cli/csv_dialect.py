"""The quotes of a CSV: checks that they follow the dialect, and finds the ends of rows. Vectorised over the bytes of a block.

Owns: quoting, escaping. Must not know: columns, Arrow's parser, files.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

_LF, _CR = b"\n"[0], b"\r"[0]

Positions = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


class Dialect(NamedTuple):
    """The quoting of cells. The default is RFC 4180: no escape character, and quotes within a cell are doubled.

    `quote` is one ASCII character; empty: quotes are text. `escape` is one ASCII character; empty: none. Within a quoted cell it
    escapes a quote or itself; anywhere else it is text, as in Spark's CSV writer.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""


class BadQuoteError(ValueError):
    """A quote that the dialect does not allow. `row_start` is the position of its row in the block."""

    def __init__(self, text: str, row_start: int) -> None:
        super().__init__(text)
        self.row_start = row_start


class Block:
    """Bytes that begin at the start of a row, and the positions of the quotes that open and close cells."""

    def __init__(self, data: bytes, dialect: Dialect) -> None:
        self._data = data
        self._dialect = dialect
        self._codes = np.frombuffer(data, np.uint8)
        none = np.empty(0, np.intp)
        self._escaped_quotes = self._escaped_escapes = none
        has_quotes = bool(dialect.quote) and dialect.quote.encode() in data
        self._quotes = np.flatnonzero(self._codes == ord(dialect.quote)) if has_quotes else none
        if has_quotes and dialect.escape and dialect.escape.encode() in data:
            self._find_escapes()

    def _find_escapes(self) -> None:
        """Remove the escaped quotes from the quotes. In a run of escape characters each odd one escapes the next."""
        escapes = np.flatnonzero(self._codes == ord(self._dialect.escape))
        starts = np.concatenate(([True], np.diff(escapes) != 1))
        numbers = np.arange(len(escapes))
        in_run = numbers - numbers[starts][np.cumsum(starts) - 1]
        followed = escapes[in_run % 2 == 0] + 1
        followed = followed[followed < len(self._codes)]
        after = self._codes[followed]
        self._escaped_quotes = followed[after == ord(self._dialect.quote)]
        pairs = followed[after == ord(self._dialect.escape)]
        is_quote = self._codes == ord(self._dialect.quote)
        is_quote[self._escaped_quotes] = False
        self._quotes = np.flatnonzero(is_quote)
        self._escaped_escapes = pairs[self._is_quoted(pairs)]

    def _is_quoted(self, positions: Positions) -> Flags:
        quotes_before: Positions = np.searchsorted(self._quotes, positions)
        return cast(Flags, quotes_before % 2 == 1)

    def end_of_rows(self) -> int:
        """Return the position after the line end of the last whole row; 0 if there is none.

        A carriage return at the very end may be half of a line end, and ends no row yet.
        """
        return max(self._last_line_end(b"\n", len(self._data)), self._last_line_end(b"\r", len(self._data) - 1))

    def _last_line_end(self, line_end: bytes, stop: int) -> int:
        """Return the position after the last unquoted `line_end` before `stop`; 0 if there is none."""
        while (at := self._data.rfind(line_end, 0, max(stop, 0))) >= 0:
            quotes = int(np.searchsorted(self._quotes, at))
            if quotes % 2 == 0:
                return at + 1
            stop = int(self._quotes[quotes - 1])
        return 0

    def check(self, is_last: bool) -> None:
        """Check that each quote opens, closes or is doubled as the dialect says. A closing quote may end the block.

        Args:
            is_last: whether the file ends with this block, so that every quoted cell must be closed.

        Raises:
            BadQuoteError: a quote does not.
        """
        if not len(self._quotes) and not len(self._escaped_quotes):
            return
        wrong = [(at, text) for at, text in (self._bad_opening(), self._bad_closing(), self._bad_escaped()) if at >= 0]
        if is_last and len(self._quotes) % 2:
            wrong.append((int(self._quotes[-1]), "a quote is never closed"))
        if wrong:
            at, text = min(wrong, key=lambda found: found[0])
            raise BadQuoteError(text, self._row_start(at))

    def _row_start(self, at: int) -> int:
        stop = at
        return max(self._last_line_end(b"\n", stop), self._last_line_end(b"\r", stop))

    def _bad_opening(self) -> tuple[int, str]:
        opening = self._quotes[::2]
        inner = opening[opening > 0]
        wrong = inner[~self._may_border(self._codes[inner - 1])]
        return (int(wrong[0]) if len(wrong) else -1), "a quote stands within a cell that does not begin with one"

    def _bad_closing(self) -> tuple[int, str]:
        closing = self._quotes[1::2]
        inner = closing[closing < len(self._codes) - 1]
        wrong = inner[~self._may_border(self._codes[inner + 1])]
        return (int(wrong[0]) if len(wrong) else -1), "text follows a closing quote"

    def _bad_escaped(self) -> tuple[int, str]:
        wrong = self._escaped_quotes[~self._is_quoted(self._escaped_quotes)]
        return (
            int(wrong[0]) if len(wrong) else -1
        ), "an escaped quote stands within a cell that does not begin with a quote"

    def _may_border(self, codes: npt.NDArray[np.uint8]) -> Flags:
        """Return which bytes may precede an opening quote and follow a closing one. A quote may: two are one of the cell."""
        dialect = self._dialect
        is_border = (codes == ord(dialect.delimiter)) | (codes == ord(dialect.quote)) | (codes == _LF) | (codes == _CR)
        return cast(Flags, is_border)

    def plain(self, end: int) -> bytes:
        """Return the bytes before `end` with escaped quotes doubled, and escaped escape characters single."""
        if not len(self._escaped_quotes) and not len(self._escaped_escapes):
            return self._data[:end]
        codes = self._codes[:end].copy()
        codes[self._escaped_quotes[self._escaped_quotes < end] - 1] = ord(self._dialect.quote)
        return np.delete(codes, self._escaped_escapes[self._escaped_escapes < end]).tobytes()
