"""Run the core alone: ``python -m services.core``, configured by the environment."""

from services.core.service import make_machine
from shared.runtime.service import run_members

if __name__ == "__main__":
    run_members("core", make_machine)
