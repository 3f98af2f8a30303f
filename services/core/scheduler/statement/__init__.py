"""The moves that keep every ledger true, and the check that they are.

Nothing here decides or refuses.
"""
