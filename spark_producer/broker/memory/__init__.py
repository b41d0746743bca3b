"""Memory of the broker: budgets, the plan that divides them, and what the system says.

Owns: bounds in bytes, and how much of them is taken.
Must not know: connections and storage, which take from the budgets.
"""
