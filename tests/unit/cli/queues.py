"""Configurations of queues that several tests of the command line replay on."""

# Whoever comes to b evicts from a, which is full by then.
EVICTING = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: a, resources: {max: {nvidia.com/gpu: 16}}}
          - {name: b, resources: {guaranteed: {nvidia.com/gpu: 8}}}
"""
