"""The timer service: says when a time that the core asked for has come. ``wheel`` is pure."""
