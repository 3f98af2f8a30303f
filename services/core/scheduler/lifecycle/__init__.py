"""How an application comes to its end.

No node, victim or order is chosen here.
"""
