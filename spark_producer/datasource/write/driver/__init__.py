"""The driver of a write: checks before the tasks, commit and reports after them.

Owns: schema checks, the report of a write and who gets it.
Must not know: how a task sends its rows (`worker`).
"""
