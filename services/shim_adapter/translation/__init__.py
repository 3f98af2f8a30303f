"""From manifests and annotations to pods and task groups. Pure: text in, values or sentences out.

Source: docs/rules/pods.md, docs/rules/gangs.md#task-groups and
docs/rules/gangs.md#placeholder-pods.
"""
