"""Builds messages for the resource manager, the API, users and timers from the journal.

Nothing here changes the model.
"""
