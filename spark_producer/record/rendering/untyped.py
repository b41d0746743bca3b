"""Arrow without its stubs, in which neither large strings nor columns of a type that is known only at run time are possible."""

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
