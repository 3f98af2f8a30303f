"""Preemption policies: which allocations may be victims for which ask; what-if.

No policy imports another.
"""
