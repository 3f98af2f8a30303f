"""Authentication and roles: tokens, OIDC, the check before every route, the audit log.

``roles.py`` defines the role of each route; this package knows a route only by its role. No secret
is logged or shown, and none is stored that could be hashed.
"""
