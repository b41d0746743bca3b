"""Simulated disks: files that are the system's, on devices that do one thing at a time and take as long as their script says.

No file is really forced, so figures hardly depend on the disk of the machine. What a device cannot show is what a real one does
between two forces: it writes pages back when it likes, and serves several queues.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.file_ops import Buffer, UnforcedFiles
from spark_producer.broker.storage.tiered.journal.file_names import name_of

JOURNAL_SUFFIX: Final = Path(name_of(0)).suffix
ENTRY_LOG_SUFFIX: Final = ".log"


class User(enum.Enum):
    """Whose files they are: the journal, the entry logs, or the rest (index, catalog, mark)."""

    JOURNAL = "journal"
    ENTRY_LOG = "entry log"
    OTHER = "other"


def user_of(path: Path) -> User:
    """Return whose file it is."""
    if path.suffix == JOURNAL_SUFFIX:
        return User.JOURNAL
    return User.ENTRY_LOG if path.suffix == ENTRY_LOG_SUFFIX else User.OTHER


@dataclass(frozen=True)
class Speed:
    """The duration of a force: `force_s` seconds, and one second for each `bytes_per_s` bytes that were written before."""

    force_s: float
    bytes_per_s: float

    def seconds(self, size: int) -> float:
        """Return the seconds that a force of `size` bytes takes."""
        return self.force_s + size / self.bytes_per_s


class Device:
    """A disk with one lock. Any thread may call.

    waits: the forces of each user that found another user's under way.
    """

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self.forces: Counter[User] = Counter()
        self.waits: Counter[User] = Counter()
        self._busy = threading.Lock()
        self._holder: User | None = None
        self._works = threading.Event()
        self._works.set()

    def force(self, user: User, size: int) -> None:
        """Take the time of a force of `size` bytes, after all earlier ones."""
        holder = self._holder
        if holder is not None and holder is not user:
            self.waits[user] += 1
        with self._busy:
            self._works.wait()
            self._holder = user
            time.sleep(self.speed.seconds(size))
            self._holder = None
            self.forces[user] += 1

    def stick(self) -> None:
        """Let no force end any more."""
        self._works.clear()


class DeviceFiles(UnforcedFiles):
    """A `FileOps` whose forces take the time of a device, one for each user of files."""

    def __init__(self, devices: dict[User, Device]) -> None:
        super().__init__()
        self._devices = devices
        self._users: dict[int, User] = {}
        self._unforced: Counter[int] = Counter()

    def open(self, path: Path, *, create: bool = False) -> int:
        """See `FileOps.open`."""
        file = super().open(path, create=create)
        self._users[file] = user_of(path)
        self._unforced[file] = 0
        return file

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """See `FileOps.write`."""
        super().write(file, buffers, position)
        self._unforced[file] += sum(map(len, buffers))

    def force(self, file: int) -> None:
        """See `FileOps.force`. What is written meanwhile counts for the next one."""
        user = self._users[file]
        size, self._unforced[file] = self._unforced[file], 0
        self._devices[user].force(user, size)


def on_one_device(speed: Speed) -> dict[User, Device]:
    """Return where all files are on the same device."""
    device = Device(speed)
    return dict.fromkeys(User, device)


def on_two_devices(speed: Speed) -> dict[User, Device]:
    """Return where the journal has a device of its own."""
    journal, ledgers = Device(speed), Device(speed)
    return {User.JOURNAL: journal, User.ENTRY_LOG: ledgers, User.OTHER: ledgers}
