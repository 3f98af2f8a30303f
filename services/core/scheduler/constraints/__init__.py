"""What may be: whether a node, a pod's domain, a guarantee lets something happen.

Nothing here chooses among what may be.
"""
