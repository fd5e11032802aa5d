"""A job of another process, whose errors come back as words."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

from relfrog.errors import RelFrogError, UsageError

__all__ = ["Answer", "Job", "Work", "guarded"]

#: What a job is made of, and its result: plain values, arrays and frames.
Job: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]
#: Runs a job; a module-level function, as processes find it by its name.
Work: TypeAlias = Callable[[Job], Answer]


def guarded(work: Work, job: Job) -> Answer:
    """Run a job.

    Returns:
        Its result; or an `error` in words, with `usage` if what was asked for cannot be.
    """
    try:
        return work(job)
    except UsageError as error:
        return {"error": str(error), "usage": True}
    except RelFrogError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except KeyboardInterrupt:
        return {"error": "interrupted"}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
