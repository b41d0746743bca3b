"""Arrow as `Any`: its stubs lack large strings, and columns whose type is known only at run time."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow
import pyarrow.compute

pa: Any = pyarrow
pc: Any = pyarrow.compute

Column: TypeAlias = Any
"""An Arrow array of any type."""
Kind: TypeAlias = Any
"""An Arrow type."""
