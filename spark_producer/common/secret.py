"""`Secret`: a text that no message, `repr`, log, format string or JSON shows."""

from __future__ import annotations

HIDDEN = "***"


class Secret:
    """A password or key, or a reference to one. Only `reveal` returns the text.

    Secrets are compared by value in constant time. They have no hash, because a set or dictionary would not compare them so.
    They are pickled with their text, because Spark's driver sends them to the tasks.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. The caller must not put it into an error, a log or an attribute."""
        return self._text

    def __bool__(self) -> bool:
        """Return whether the text is not empty, as for a string."""
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # loads OpenSSL, a cost that only producers with secrets should have

        return compare_digest(_bytes(self._text), _bytes(other._text))

    __hash__ = None  # type: ignore[assignment]  # how Python marks a class that cannot be hashed

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, form: str) -> str:
        return HIDDEN

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
