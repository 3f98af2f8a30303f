"""What the scheduler does: allocate, gangs, replacement, reservations, quota, stale gangs.

No message and no event of state is made here.
"""
