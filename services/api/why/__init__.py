"""Why something waits, and what if: from what the core recorded to a sentence with its evidence."""
