"""Child processes that end with us, whatever happens.

Owns: start in a group of its own, output to a file, death with the parent, ordered and forced ends.
Must not know: what runs inside.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

# Runs in the child before it becomes the wanted program: ask the kernel for SIGKILL when the parent dies
# (1 = PR_SET_PDEATHSIG, kept across exec). A launcher and not preexec_fn: that one is unsafe beside threads.
_LAUNCHER = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit('the parent is gone')\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)

_living: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


class ChildProcess:
    """One running program, in its own process group, its output appended to a file.

    Linux ends it with the *thread* that started it, so start it from one that lives long enough.
    """

    def __init__(self, command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> None:
        self.output = output
        self._name = Path(command[0]).name
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
        with output.open("ab") as sink:
            self._process = subprocess.Popen(
                launch,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=None if environment is None else {**os.environ, **environment},
            )
        _living.add(self)

    @property
    def pid(self) -> int:
        """Process id, the same before and after the launcher became the program."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative signal number when a signal ended it."""
        return self._process.poll()

    def has_ended(self) -> bool:
        """Return whether the process runs no longer."""
        return self.exit_code is not None

    def wait(self, timeout: float) -> int:
        """Exit code once it has ended; raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout)

    def terminate(self, timeout: float) -> None:
        """Ask it to end (SIGTERM), and kill it when it has not within `timeout` seconds."""
        if self.exit_code is None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL to the whole group, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self._process.wait(30)
        _living.discard(self)

    def tail(self, lines: int = 40) -> str:
        """End of the output, for messages."""
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


@atexit.register
def _kill_the_living() -> None:
    for child in list(_living):
        child.kill()
