"""``/debug/stack``: the stacks of every thread and task of the API.

Source: docs/rules/rest.md#routes.
"""

import asyncio
import sys
import threading
import traceback
from io import StringIO

MAX_TASKS = 1_000  # threads and tasks in a stack dump; of the others only the number is given
MAX_FRAMES = 50  # frames of a thread or task in a stack dump; the innermost are shown


def stacks() -> str:
    """Return the stacks as text; call it in the tasks' loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame, MAX_FRAMES))}"
        for ident, frame in sys._current_frames().items()
    ]
    tasks = list(asyncio.all_tasks())
    parts += [_of_task(task) for task in tasks[:MAX_TASKS]]
    if len(tasks) > MAX_TASKS:
        parts.append(f"and {len(tasks) - MAX_TASKS} more tasks\n")
    return "\n".join(parts)


def _of_task(task: asyncio.Task[object]) -> str:
    text = StringIO()
    task.print_stack(limit=MAX_FRAMES, file=text)
    return f"task {task.get_name()}:\n{text.getvalue()}"
