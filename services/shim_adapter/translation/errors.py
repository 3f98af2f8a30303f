"""A manifest that cannot be taken."""


class ManifestError(ValueError):
    """What is wrong with a manifest, and at which field."""

    def __init__(self, field_path: str, message: str) -> None:
        super().__init__(f"{field_path}: {message}" if field_path else message)
        self.field_path = field_path
        self.message = message
