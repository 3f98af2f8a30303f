"""Programs over the services: the simulator, replay of traces, scenario files, and `muster` itself.

`main.py` is the command line with every command, `invariants.py` the check of the core's sums that
the tools and the tests share. No service imports anything of here.
"""
