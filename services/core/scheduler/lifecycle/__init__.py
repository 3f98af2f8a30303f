"""News of nodes, applications, asks and allocations, and how an application comes to its end.

No node, victim or order is chosen here.
"""
