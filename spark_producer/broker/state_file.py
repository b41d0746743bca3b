"""What the broker must know before it can read its logs: one small JSON file, and the lock on the data directory.

Owns: the file's form, writing it atomically, and that only one broker uses a data directory.
Must not know: logs, partitions or requests.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from spark_producer.broker.disk import sync_directory
from spark_producer.errors import ConfigError, CorruptRecord

_FORMAT: Final = 1
_NAME: Final = "broker.json"


@dataclass
class TopicEntry:
    """A topic as the file has it; `topic_id` in hexadecimal, `configs` as the client gave them."""

    topic_id: str
    partitions: int
    configs: dict[str, str | None] = field(default_factory=dict)


@dataclass
class BrokerState:
    """The whole content of the file. Producer ids below `next_producer_id` may have been given out."""

    cluster_id: str
    next_producer_id: int = 0
    topics: dict[str, TopicEntry] = field(default_factory=dict)


class StateFile:
    """`broker.json` in a data directory that is locked as long as this is open."""

    def __init__(self, data_dir: Path) -> None:
        """Lock `data_dir`, creating it.

        Raises:
            ConfigError: another broker uses it.
        """
        data_dir.mkdir(parents=True, exist_ok=True)
        self._path = data_dir / _NAME
        self._lock = os.open(data_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The kernel gives the lock back when the process dies, however it dies.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(
                f"data directory {data_dir} is in use by another broker: stop that or use another"
            ) from error

    def load(self) -> BrokerState:
        """The stored state, or a fresh one with a new cluster id.

        Raises:
            CorruptRecord: the file is not what a broker of this version wrote.
        """
        try:
            stored = json.loads(self._path.read_text())
            if stored.pop("format") != _FORMAT:
                raise ValueError("unknown format")
            topics = {name: TopicEntry(**entry) for name, entry in stored.pop("topics").items()}
            return _checked(BrokerState(topics=topics, **stored))
        except FileNotFoundError:
            return BrokerState(cluster_id=base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptRecord(f"{self._path} is not a broker's state ({error}); restore it or start anew") from error

    def store(self, state: BrokerState) -> None:
        """Replace the file as a whole: after a crash at any moment the old or the new one is there."""
        fresh = self._path.with_suffix(".json.new")
        with fresh.open("w") as file:
            json.dump({"format": _FORMAT, **asdict(state)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        sync_directory(self._path.parent)

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._lock)


def _checked(state: BrokerState) -> BrokerState:
    """The state, if all of its values are of the types that they should be; ValueError names the first that is not."""
    values = {"cluster_id": (state.cluster_id, str), "next_producer_id": (state.next_producer_id, int)}
    for name, entry in state.topics.items():
        values[f"topic_id of {name!r}"] = (entry.topic_id, str)
        values[f"partitions of {name!r}"] = (entry.partitions, int)
        values[f"configs of {name!r}"] = (entry.configs, dict)
        bytes.fromhex(str(entry.topic_id))
    for what, (value, kind) in values.items():
        if type(value) is not kind:
            raise ValueError(f"{what} is {value!r}, not of type {kind.__name__}")
    return state
