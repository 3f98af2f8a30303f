"""Values that every package shares: resources, quantities, states, identities.

Nothing here may do I/O, read a clock or import another package.
"""
