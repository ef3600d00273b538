"""What the next step will do: a pure state machine over sequences and pages.

No clock, no input or output, no arrays: `plan` says which positions of which sequences the next
step computes, `apply` takes the tokens that came of it.
"""

from pellucid.scheduling.limits import Limits
from pellucid.scheduling.scheduler import Scheduler
from pellucid.scheduling.sequence import Sequence, State

__all__ = ["Limits", "Scheduler", "Sequence", "State"]
