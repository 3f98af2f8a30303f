"""Every message between the services, as frozen dataclasses.

A message consists of scalar fields and *sections*, which are tuples of items
(``shared.messages.sections``). Python names are snake_case; the wire and JSON use the camelCase
names of the scheduler interface.
"""
