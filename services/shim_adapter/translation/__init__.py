"""From manifests and annotations to pods and task groups. Pure: text in, values or sentences out.

Source: contract sections 2.1 to 2.7.
"""
