"""Every message that travels between the services, as frozen dataclasses.

A message is made of scalar fields and of *sections*, tuples of items: see
``shared.messages.sections``. Python names are snake_case; the wire and JSON use the scheduler
interface's own camelCase names.
"""
