"""The scheduler's actions: allocate, gangs, replacement, reservations, preemption, stale gangs.

No message and no state event is made here.
"""
