"""What the resource manager says: nodes, applications, asks, allocations, pods of others.

Each item is judged here and taken into the model, and what follows from it at once is done. No
node, victim or order is chosen here.
"""
