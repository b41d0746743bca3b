"""All targets by their names."""

from __future__ import annotations

from tests.fuzz import documents, formats, logins, records, wire
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for module in (wire, records, formats, logins, documents) for target in module.TARGETS
}
