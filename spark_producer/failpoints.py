"""Places in an exactly-once write at which tests make a process die, wait or fail; without a test they do nothing.

A place costs one look into the environment. There are some ten in a write, and none on the way of a row.
"""

from __future__ import annotations

import importlib
import os

VARIABLE = "PYPRODUCER_FAILPOINT"
"""The environment variable that names the function of a test, as `module:function`. It is for tests only."""


def failpoint(name: str) -> None:
    """Call the function of the test with the `name` of this place, if there is one. What it raises is raised here."""
    function = os.environ.get(VARIABLE)
    if function:
        module, _, attribute = function.partition(":")
        getattr(importlib.import_module(module), attribute)(name)
