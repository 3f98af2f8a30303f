"""Places for the pods of a gang that are to be in one domain of the nodes, or a part of it.

Rule: all that start together get a place on idle room, in the first domain that takes them, level
      by level and part by part of the gang's tree (``placing.py``); or none does.
Cost: what looking at all nodes costs, each time that such a gang is considered.
"""

from collections.abc import Mapping

from services.core.scheduler.actions import gang_places
from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.actions.gang_places import NoPlaces
from services.core.scheduler.actions.jobs_in_order import tasks_to_allocate
from services.core.scheduler.actions.live_actions import LiveTerms
from services.core.scheduler.actions.placing import place_job
from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.tentative import Tentative
from services.core.scheduler.statement.trial import Trial
from shared.model.reasons import Fact, Kind, Reason, Refusal


def find(
    trial: Tentative, partition: Partition, application: Application
) -> list[tuple[Ask, Node]] | NoPlaces:
    """Find a place for every pod that starts next, or say that there is none.

    What was found is on the trial, as by ``gang_places.find``.
    """
    kept = gang_places.kept_nodes(application)
    places = _where_it_is_kept(application, kept) if kept else _in_a_domain(partition, application)
    if not places or not _place(trial, places):
        count = sum(application.next_pods().values())
        refusal = Refusal(Reason.GANG_PLACES, Fact(Kind.NO_DOMAIN, count=count))
        return NoPlaces(refusal, application.placeholder_needs())
    return places


def _place(trial: Tentative, places: list[tuple[Ask, Node]]) -> bool:
    """Count pods in on their nodes, all or none; return whether the nodes take them."""
    before = trial.checkpoint()
    for ask, node in places:
        if not trial.nodes.filters.takes.holds(node, ask.shape):
            trial.rollback(before)
            return False
        trial.place(ask, node)
    return True


def _where_it_is_kept(application: Application, kept: Mapping[str, Node]) -> list[tuple[Ask, Node]]:
    """Return the nodes on which others made way for it: those are of one domain."""
    asks = [ask for ask in application.asks() if ask.key in kept]
    wanted = sum(application.next_pods().values())
    return [(ask, kept[ask.key]) for ask in asks] if len(asks) == wanted else []


def _in_a_domain(partition: Partition, application: Application) -> list[tuple[Ask, Node]]:
    """Return where all that start next may go now, on nodes that nothing is kept on."""
    trial = Trial(partition, LiveTerms(partition))
    job = trial.job_of(application)
    tasks = tasks_to_allocate(job)
    is_placed = bool(tasks) and place_job(Attempt(trial, job.name), job, tasks, now=True)
    found = [(task.pod, task.node) for task in tasks if is_placed]
    trial.statement.discard()
    return [(pod, node) for pod, node in found if isinstance(pod, Ask) and node is not None]
