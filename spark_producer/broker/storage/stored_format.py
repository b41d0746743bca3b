"""The number of the format in `broker.json`, and in the files of the tiered catalog."""

from __future__ import annotations

from pathlib import Path

from spark_producer.errors import CorruptRecord


def refuse_newer_format(path: Path, found: object, known: int) -> None:
    """Refuse a file that a newer version wrote.

    Raises:
        CorruptRecord: `found` is a number above `known`; a backup would have the same format, so none is advised.
    """
    if type(found) is int and found > known:
        raise CorruptRecord(
            f"{path} cannot be read: it has format {found}, and this pyproducer knows format {known}. A newer pyproducer wrote "
            "it: use that version, or a newer one"
        )
