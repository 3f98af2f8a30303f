"""The core: the only service that decides. ``scheduler`` is its pure part."""
