"""Why and what-if: answers with a sentence and its evidence, from what the core recorded."""
