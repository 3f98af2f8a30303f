"""Reports: from the journal to messages for the resource manager, the API, users and the timers.

Nothing here changes the model.
"""
