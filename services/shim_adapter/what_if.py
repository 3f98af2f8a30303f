"""Converts manifests of a what-if request to applications and asks, without creating anything."""

from dataclasses import replace

from services.shim_adapter.mirror.asks import application_request, ask_of
from services.shim_adapter.mirror.gangs import missing_placeholders
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodRecord
from services.shim_adapter.translation.manifests import translate
from shared.messages.commands import RefusedDocument
from shared.messages.interface import AddApplicationRequest, AllocationAsk
from shared.messages.what_if import WhatIf
from shared.model.ids import derived_id


def question_of(world: World, asked: WhatIf, now_ns: int) -> WhatIf:
    """Return the request with the applications of its documents, and their first asks.

    The asks of a gang are its placeholders; other applications ask for their pods.
    """
    translation = translate(asked.documents, 0, tuple(world.nodes.values()))
    supposed = World()
    supposed.namespace_tags.update(world.namespace_tags)
    requests: list[AddApplicationRequest] = []
    asks: list[AllocationAsk] = []
    for taken in translation.taken:
        for number, spec in enumerate(taken.pods):
            name = spec.application_id
            uid = derived_id(f"what-if/{taken.document.index}/{taken.name}/{spec.name}", number)
            pod = PodRecord(uid, spec, now_ns, number)
            application = supposed.applications.get(name)
            if application is None:
                application = supposed.application_of(pod)
                requests.append(application_request(application))
                asks += [
                    ask_of(PodRecord(call.uid, call.spec, now_ns, at), originator=False)
                    for at, call in enumerate(missing_placeholders(supposed, application))
                ]
            if not application.task_groups:
                asks.append(ask_of(pod, originator=False))
    refused = tuple(
        RefusedDocument(document.source, document.index, error.field_path, error.message)
        for document, error in translation.refused
    )
    return replace(
        asked, documents=(), applications=tuple(requests), asks=tuple(asks), refused=refused
    )
