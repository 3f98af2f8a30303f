"""Fair shares: each queue's quota, then the rest by weight, for each resource and level.

Rule 1: a queue first gets its quota, as far as it requests it and its limit allows; quotas are not
        scaled down when they exceed the total.
Rule 2: the rest goes to queues that request more, highest priority first, in proportion to their
        weights and in whole units, repeated while a queue needed less than its part.
Rule 3: units left by rounding go one by one to the largest fractions, older queues first.
Rule 4: with usage over time, a weight w among the queues that want more, normalised to the sum 1,
        becomes max(0, w + k(w - used)), where ``used`` is the queue's part of the cluster's usage.
        If all are 0, the plain weights are used.
Source: docs/rules/kai.md#fair-share; case tables kai_fairshare_cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from services.core.scheduler.model.rows import Queue
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.trial import (
    UNLIMITED,
    Share,
    Trial,
    in_order,
    minus,
    plus,
)

Exact = int | Fraction
ZERO = Fraction(0)
_exact = lru_cache(1_000)(Fraction)  # queues have few weights, and each is read per type


@dataclass(slots=True)
class Claim:
    """A queue's claim to one resource. ``number`` is its age: smaller is older.

    Amounts are whole in the scheduler; case tables may have fractions, which stay exact.
    """

    number: int
    priority: int
    quota: Exact
    limit: Exact
    weight: Fraction
    requested: Exact
    used: Fraction = ZERO  # usage over time, as part of the cluster
    share: Exact = 0
    part: Fraction = ZERO  # its normalised weight at the first division of the rest
    fraction: Fraction = ZERO

    @property
    def most(self) -> Exact:
        """Return the largest amount that it can use."""
        return self.requested if self.limit == UNLIMITED else min(self.limit, self.requested)

    @property
    def left(self) -> Exact:
        """Return how much more it can use."""
        return self.most - self.share


def divide(total: Exact, claims: Sequence[Claim], k: Fraction = ZERO) -> None:
    """Divide a total; sets each claim's ``share``. ``k``: weight of usage over time."""
    for claim in claims:
        quota = total if claim.quota == UNLIMITED else claim.quota
        claim.share = min(quota, claim.most)
    rest = total - sum([claim.share for claim in claims])
    if rest <= 0:
        return
    levels = [
        [claim for claim in claims if claim.priority == priority]
        for priority in sorted({claim.priority for claim in claims}, reverse=True)
    ]
    for level in levels:
        rest = _by_weight(rest, level, k)
    for level in levels:
        rest = _left_over(rest, level)


def weights_of(claims: Sequence[Claim], k: Fraction) -> list[Fraction]:
    """Return the weights of claims that all want more."""
    weights = [claim.weight for claim in claims]
    total = sum(weights, ZERO)
    if not (k and any(claim.used for claim in claims)):
        return weights
    parts = [weight / total for weight in weights]
    by_usage = [
        max(ZERO, part + k * (part - claim.used)) for part, claim in zip(parts, claims, strict=True)
    ]
    return by_usage if any(by_usage) else weights


def _by_weight(rest: Exact, claims: list[Claim], k: Fraction) -> Exact:
    """Give out in proportion to the weights, until no claim needed less than its part."""
    needs_less = True
    while needs_less and rest > 0:
        needs_less = False
        wanting = [claim for claim in claims if claim.left > 0 and claim.weight > 0]
        weights = weights_of(wanting, k)
        total, amount = sum(weights, ZERO), rest
        for claim, weight in zip(wanting, weights, strict=True):
            fair = amount * weight / total
            claim.part = claim.part or weight / total
            claim.fraction = ZERO
            if claim.left <= fair:
                needs_less = needs_less or claim.left < fair
                given: Exact = claim.left
            else:
                given = fair.numerator // fair.denominator
                claim.fraction = fair - given
            claim.share += given
            rest -= given
    return rest


def _left_over(rest: Exact, claims: list[Claim]) -> Exact:
    """Give out the units left by rounding, one each."""
    wanting = [claim for claim in claims if claim.left > 0 and claim.weight > 0]
    for claim in sorted(wanting, key=lambda claim: (-claim.fraction, claim.number)):
        if rest <= 0:
            break
        given = min(1, rest, claim.left)
        claim.share += given
        rest -= given
    return rest


def set_fair_shares(trial: Trial) -> None:
    """Set every queue's request and fair share, from the root down."""
    set_requested(trial.partition, trial.shares, trial.names)
    divide_level(trial.top, trial.total, trial.width, trial.partition.settings.k_value)


def set_requested(
    partition: Partition, shares: Mapping[Queue, Share], names: tuple[str, ...]
) -> None:
    """Set every queue's request: its usage and everything that waits in it.

    Asks count even if they may not start now, or fit no node. Asks with reserved capacity are part
    of the usage.
    """
    for queue, share in shares.items():
        share.requested = list(plus(share.allocated, in_order(queue.pending, names)))
    for node in partition.nodes.columns.reserved_nodes():
        for claim in node.reservations.values():
            kept = in_order(claim.in_queues, names)
            for share in shares[claim.application.queue].lineage():
                share.requested = list(minus(share.requested, kept))


def divide_level(shares: list[Share], totals: Sequence[int], width: int, k: Fraction) -> None:
    """Divide the totals of each type among queues, and each queue's among its children."""
    for idle in [share for share in shares if not any(share.requested)]:
        idle.set_fair_share([0] * width)
        divide_level(idle.children, idle.fair_share, width, k)
    shares = [share for share in shares if any(share.requested)]
    found: list[list[int]] = [[] for _ in shares]
    for at in range(width):
        claims = [
            Claim(
                share.number,
                share.priority,
                share.quota[at],
                share.limit[at],
                _exact(share.weight[at]),
                share.requested[at],
                share.used[at] if share.used else ZERO,
            )
            for share in shares
        ]
        divide(totals[at], claims, k)
        for share, amounts, claim in zip(shares, found, claims, strict=True):
            amounts.append(int(claim.share))
            if share.used:
                share.parts.append(claim.part)
    for share, amounts in zip(shares, found, strict=True):
        share.set_fair_share(amounts)
        if share.children:
            divide_level(share.children, amounts, width, k)
