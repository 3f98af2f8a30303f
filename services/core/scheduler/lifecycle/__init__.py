"""How an application ends.

No node, victim or order is chosen here.
"""
