"""The disk beneath the embedded broker, with faults and counts that no file in the way can bring about."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest


class Disk:
    """Stands between the broker and the calls of the system on files (functions of `os`, by name), until `restore`.

    Files are synced no more from its making on; `synced` has those that would have been, by their inode numbers.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.synced: list[int] = []
        self.accept_syncs()

    def replace(self, call: str, function: Callable[..., Any]) -> None:
        """Call `function` instead of `call`."""
        self._patch.setattr(os, call, function)

    def refuse(self, call: str, code: int) -> None:
        """Let `call` fail with this errno."""

        def refused(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        self.replace(call, refused)

    def accept_syncs(self) -> None:
        """Undo `refuse("fdatasync", …)`."""
        self.replace("fdatasync", lambda file: self.synced.append(os.fstat(file).st_ino))

    def restore(self) -> None:
        """Pass all calls to the system again."""
        self._patch.undo()
