"""From asks to nodes: ``place`` puts a tree of asks on nodes, all of them or none.

Who may take an ask and which node comes first is asked of the placer that is handed in; nothing is
allocated here.
"""
