"""Limits that allow or refuse something: fair shares, guarantees, capacity.

Nothing here chooses between candidates.
"""
