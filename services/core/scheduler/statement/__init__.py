"""The moves that change the model and keep all its sums right, and their undo.

Nothing here decides or refuses.
"""
