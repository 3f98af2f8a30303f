"""Values that every room shares: resources, quantities, states, identities.

Nothing in here may do I/O, read a clock or import another room.
"""
