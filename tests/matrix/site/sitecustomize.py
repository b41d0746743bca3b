"""Installs the failpoint of the matrix in each Python process that Spark starts: Python imports this module when it begins.

Its folder is on the path of these processes alone, and `MATRIX_FAILPOINT` is the function to call, as `module:function`.
"""

from __future__ import annotations

import importlib
import os


def install() -> None:
    """Find the function when the first failpoint is reached, and not before: most processes reach none."""
    from spark_producer.common import failpoints

    module, _, attribute = os.environ["MATRIX_FAILPOINT"].partition(":")
    failpoints.install(lambda name: getattr(importlib.import_module(module), attribute)(name))


if os.environ.get("MATRIX_FAILPOINT"):
    install()
