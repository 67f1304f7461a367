"""The verbs of the plan: see it, compare it, say what a change would do, do it, and where precompute pays."""
