"""Upgrades and downgrades: the state of earlier versions, read and continued; streams over a change of version."""
