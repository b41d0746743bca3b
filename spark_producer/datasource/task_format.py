"""The format of pickled tasks: its number is the first thing that a task reads, before all else of it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any

from spark_producer.datasource.error_boundary import as_pickling_error
from spark_producer.errors import CommitError
from spark_producer.version import __version__

TASK_FORMAT = 1
"""The number of the format of pickled tasks and of their reports. Raise it when a class or a field of them changes
(`tests/upgrade/task_format.txt`); another version of the package with the same number does the tasks of this one."""


class _Stamp:
    """The number and the version of the driver, which are compared where they are unpickled."""

    def __reduce__(self) -> tuple[Callable[[int, str], None], tuple[int, str]]:
        return check_task_format, (TASK_FORMAT, __version__)


class StampedTask:
    """What Spark pickles for tasks, a reader, a writer or the data source: its pickle begins with the stamp of the driver.

    A pickle is read from its start to its end. So classes and fields that another version lacks are met only after the stamp.
    What reads it, `check_task_format` and `restored_task`, keeps its name and arguments in all versions.
    """

    @as_pickling_error
    def __reduce__(self) -> tuple[Callable[..., StampedTask], tuple[_Stamp, type[StampedTask], Any]]:
        return restored_task, (_Stamp(), type(self), self.__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes."""
        self.__dict__.update(state)


def check_task_format(number: int, version: str) -> None:
    """Refuse a task of another format, before anything else of it is read (executor).

    Raises:
        CommitError: the number of the driver, whose package has `version`, is another one.
    """
    if number != TASK_FORMAT:
        raise CommitError(
            f"a task was not begun: the driver has pyproducer {version} (task format {number}), and this worker "
            f"({sys.executable} on {platform.node()}) has {__version__} (task format {TASK_FORMAT}). Install the same version on "
            "the driver and on all executors"
        )


def restored_task(_checked: None, kind: type[StampedTask], state: dict[str, Any]) -> StampedTask:
    """Return the reader, the writer or the data source, whose stamp has been checked."""
    task = kind.__new__(kind)
    task.__setstate__(state)
    return task
