"""Run the timers alone: ``python -m services.timers``, configured by the environment."""

from services.timers.service import make_machine
from shared.runtime.service import run_members

if __name__ == "__main__":
    run_members("timers", make_machine)
