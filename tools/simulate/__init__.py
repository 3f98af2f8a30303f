"""The simulator: every service on one thread, from one seed, in virtual time, with faults.

Rule 1: a run is determined, to the byte, by its seed and the indices of its faults. Nothing here
        reads the machine's clock, iterates over a set or draws from anything but the seed.
Rule 2: the product's code runs: hosts, machines, codec, the shim adapter's file. Only the loop's
        time, the broker and the resource manager are doubles, and they refuse what the real ones
        refuse.
Rule 3: a fault has an index, a kind and a time from which it is armed; without it, the other faults
        are the same.
"""
