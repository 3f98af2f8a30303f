"""What is told: to the resource manager, the API, people and the timers.

Nothing here changes what there is.
"""
