"""`Secret`: a text that no message, `repr`, log, format string or JSON ever shows."""

from __future__ import annotations

HIDDEN = "***"


class Secret:
    """A password or key, or a reference to one. Only `reveal` gives the text out.

    It compares by value, in a time that does not tell where two texts differ. It has no hash: a set or dictionary of secrets
    would compare them in another way. It pickles with its text, because it must travel from Spark's driver to the tasks.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Whoever calls it must not put it into an error, a log or an attribute."""
        return self._text

    def __bool__(self) -> bool:
        """Whether there is any text, as for a string."""
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # it loads OpenSSL, which those without a secret need not pay for

        return compare_digest(_bytes(self._text), _bytes(other._text))

    __hash__ = None  # type: ignore[assignment]  # as Python itself says that a class cannot be hashed

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
