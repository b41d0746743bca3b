"""The state file `broker.json`: the cluster id, producer ids and topics, which the broker needs before it can read its logs."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import write_private
from spark_producer.broker.storage.stored_format import refuse_newer_format
from spark_producer.errors import CorruptRecord
from spark_producer.record.checksum import crc32c

_FORMAT: Final = 1
_NAME: Final = "broker.json"


@dataclass
class TopicEntry:
    """A topic in the file: `topic_id` in hexadecimal, and `configs` as the client sent them."""

    topic_id: str
    partitions: int
    configs: dict[str, str | None] = field(default_factory=dict)


@dataclass
class BrokerState:
    """The content of the file.

    next_producer_id: producer ids below it may be in use.
    coordinator_bytes: minimum size of the coordinator's log in bytes, when the file was written; 0 if there was no log.
    engine: name of the storage engine; empty in files of earlier versions.
    """

    cluster_id: str
    next_producer_id: int = 0
    coordinator_bytes: int = 0
    engine: str = ""
    topics: dict[str, TopicEntry] = field(default_factory=dict)


class StateFile:
    """The file `broker.json` in a data directory, which must be locked (`DirectoryLock`) while this is used."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / _NAME

    def exists(self) -> bool:
        """Return whether there is a stored state."""
        return self.path.exists()

    def load(self) -> BrokerState:
        """Return the stored state, or a fresh one with a new cluster id.

        Raises:
            CorruptRecord: the file was not written by a broker of this version or an earlier one, or is damaged.
        """
        try:
            stored = json.loads(self.path.read_text())
            refuse_newer_format(self.path, stored["format"], _FORMAT)
            if stored["format"] != _FORMAT:
                raise ValueError(f"it has format {stored['format']!r}, and this pyproducer knows format {_FORMAT}")
            crc = stored.pop("crc32c", None)  # earlier versions wrote none
            if crc is not None and crc != _crc(stored):
                raise ValueError("its checksum does not match; if you edited it, remove the field crc32c")
            del stored["format"]
            topics = {name: TopicEntry(**entry) for name, entry in stored.pop("topics").items()}
            return _checked(BrokerState(topics=topics, **stored))
        except FileNotFoundError:
            return BrokerState(cluster_id=base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptRecord(
                f"{self.path} cannot be read as a broker's state: {error}. Restore it, or start with an empty data directory"
            ) from error

    def store(self, state: BrokerState) -> None:
        """Replace the file atomically: a crash at any moment leaves either the old or the new one."""
        content = {"format": _FORMAT, **asdict(state)}
        write_private(self.path, json.dumps({**content, "crc32c": _crc(content)}, indent=1), sync=True)


def _crc(content: object) -> int:
    """Return the checksum of the content: without it, one flipped digit could name another topic, which would start empty."""
    checksum: int = crc32c(json.dumps(content, sort_keys=True).encode())
    return checksum


def _checked(state: BrokerState) -> BrokerState:
    """Return the state; raise a ValueError that names the first value of a wrong type, if there is one."""
    values = {
        "cluster_id": (state.cluster_id, str),
        "next_producer_id": (state.next_producer_id, int),
        "coordinator_bytes": (state.coordinator_bytes, int),
        "engine": (state.engine, str),
    }
    for name, entry in state.topics.items():
        values[f"topic_id of {name!r}"] = (entry.topic_id, str)
        values[f"partitions of {name!r}"] = (entry.partitions, int)
        values[f"configs of {name!r}"] = (entry.configs, dict)
        bytes.fromhex(str(entry.topic_id))
    for what, (value, kind) in values.items():
        if type(value) is not kind:
            raise ValueError(f"{what} is {value!r}, not of type {kind.__name__}")
    return state
