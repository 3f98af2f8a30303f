"""Authentication and roles: tokens, OIDC, the guard before every route, the audit log.

What a route does and what a role means is defined in ``roles.py``; here a route is known only by
its role. No secret is logged or shown, and none is stored that could be hashed.
"""
