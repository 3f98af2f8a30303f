"""The simulator: every service on one thread, one seed, in virtual time, with faults on purpose.

Rule 1: a run follows from its seed and the indices of its faults alone, to the byte. Nothing in
        here reads the machine's clock, walks a set or draws from anything but the seed.
Rule 2: what runs is the product: hosts, machines, codec, the shim adapter's file. Only the loop's
        time, the broker and the resource manager are doubles, and they refuse what those refuse.
Rule 3: a fault has an index, a kind and a moment from which on it is armed; left out, the others
        are the same.
"""
