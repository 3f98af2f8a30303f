"""Authentication and roles: tokens, OIDC, the guard before every route, the audit log.

What a route does, and what a role means, stands elsewhere (``roles.py``): nothing here knows a
route but by its role. No secret is logged or shown, and none is kept that could be hashed.
"""
