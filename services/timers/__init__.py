"""The timer service: fires the timers that the core orders. ``wheel`` is pure."""
