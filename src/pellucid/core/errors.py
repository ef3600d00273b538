"""The closed set of errors a user can meet.

Each message is one line that names the thing, what is wrong with it and the mend. The command
line prints it and leaves with `exit_code`: 1 when something failed, 2 when the input was bad.
"""

from __future__ import annotations

from pathlib import Path


class PellucidError(Exception):
    """Something failed that the input is not to blame for."""

    exit_code = 1


class BadInput(PellucidError):  # noqa: N818 - the name users read in a traceback
    """A file, request or flag that cannot be honoured."""

    exit_code = 2


class FormatError(BadInput):
    """A model file whose bytes break its format.

    `path` is the file, `field` the part of it (a header field, a key, a tensor, with its byte
    offset where one is known), `problem` what is wrong, `mend` what the user can do.
    """

    def __init__(
        self,
        path: str | Path,
        field: str,
        problem: str,
        mend: str = "the file is damaged or was not written by a correct tool: fetch it again",
    ) -> None:
        self.path = Path(path)
        self.field = field
        self.problem = problem
        self.mend = mend
        super().__init__(f"{path}: {field}: {problem}; {mend}")


class UnsupportedError(BadInput):
    """A model, configuration value, tensor type or tokenizer that is not implemented here."""


class PromptTooLong(BadInput):
    """A prompt that does not fit the context; nothing is ever cut.

    `at_least`: its tokens were not counted, as not even so few would fit.
    """

    def __init__(self, prompt_tokens: int, max_model_len: int, at_least: bool = False) -> None:
        self.prompt_tokens = prompt_tokens
        self.max_model_len = max_model_len
        self.at_least = at_least
        super().__init__(
            f"the prompt has {self.how_many} tokens and the context holds {max_model_len} "
            "(at least one is needed for the answer): shorten the prompt or raise max_model_len"
        )

    @property
    def how_many(self) -> str:
        return f"at least {self.prompt_tokens}" if self.at_least else str(self.prompt_tokens)


class FetchError(PellucidError):
    """A model that could not be fetched, with every source that was tried."""


class Unavailable(PellucidError):  # noqa: N818
    """There is no engine at the moment, or it ended under the request: ask again later."""


class Overloaded(PellucidError):  # noqa: N818
    """More is being asked than can wait; `retry_after` says in how many seconds to ask again."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class TimedOut(PellucidError):  # noqa: N818
    """A request that took longer than it was given."""
