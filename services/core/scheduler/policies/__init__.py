"""Who makes way for whom, by the laws of a named policy.

No policy knows another.
"""
