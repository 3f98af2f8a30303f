"""A manifest that cannot be taken."""

MAX_TEXT = 500


class ManifestError(ValueError):
    """What is wrong with a manifest, and at which field."""

    def __init__(self, field_path: str, message: str) -> None:
        field_path, message = _short(field_path), _short(message)
        super().__init__(f"{field_path}: {message}" if field_path else message)
        self.field_path = field_path
        self.message = message


def _short(text: str) -> str:
    """Return a text cut to what users read; what they sent may be in it."""
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
