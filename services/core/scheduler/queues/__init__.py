"""The configured queue tree, and placement: which queue an application goes to.

No usage is counted here.
"""
