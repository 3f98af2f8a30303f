"""Fragmentation as it is defined, class by class and device by device: the reference for scores.

A node is (vcore, memory, free by device), the mix a list of asks. Source: Weng et al., USENIX
ATC'23, section 4; docs/adr/0070 has what is added. Slow, and nothing here is the scheduler's own.
"""


def can_run(node, ask):
    vcore, memory, free = node
    large = sum(left >= ask.size for left in free)
    return vcore >= ask.vcore and memory >= ask.memory and large >= ask.number


def fragment(node, ask):
    """F_n(m): all that is free where it cannot run, and what it is of no use to it elsewhere."""
    free = node[2]
    if not ask.number or not can_run(node, ask):
        return sum(free)
    return sum(left for left in free if left < ask.size)


def fragmentation(node, asks):
    """F_n, times the number of asks: each is a class of popularity one by their number."""
    return sum(fragment(node, ask) for ask in asks)


def placed(node, ask):
    """Every way to place an ask: the device of one share may be any, others go to the fullest."""
    vcore, memory, free = node[0] - ask.vcore, node[1] - ask.memory, node[2]
    holding = [at for at, left in enumerate(free) if left >= ask.size]
    fullest = sorted(holding, key=lambda at: (free[at], -at))
    ways = [[at] for at in fullest] if ask.number == 1 else [fullest[: ask.number]]
    for way in ways:
        left = tuple(was - ask.size * (at in way) for at, was in enumerate(free))
        yield free[way[0]] if way else 0, (vcore, memory, left)


def stranded(node, asks):
    """GPUs for which there is too little vcore, at the vcore a GPU that is asked for."""
    gpus = sum(ask.size * ask.number for ask in asks)
    vcore = sum(ask.vcore for ask in asks if ask.number)
    return max(0, sum(node[2]) - max(0, node[0]) * gpus // vcore) if vcore else 0


def scored(node, ask, asks):
    """The score of a node for an ask, in thousandths of a step of 0.04 GPU, and of which device."""
    before, total = fragmentation(node, asks), 40 * len(asks)
    share = sum(node[2]) // len(node[2]) if node[2] else 0
    found = []
    for device, after in placed(node, ask):
        rise = fragmentation(after, asks) - before
        moved = stranded(after, asks) - stranded(node, asks)
        steps = (rise + total // 2) // total
        found.append((steps * 1000 + share // 10 + 7500 * moved // 1000, device))
    return min(found)
