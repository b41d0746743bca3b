"""The memory of the broker: limits of connections, the plan that divides the budgets, and the memory of the system.

Owns: limits in bytes, and how much of them is used.
Must not know: connections and storage, which use them.
"""
