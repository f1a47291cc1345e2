"""Models: what a caller needs of one, and its form over litellm. Only here are litellm and tiktoken imported.

`model.py` asks a question that stands alone, `chat.py` holds a conversation; both reach a provider by
`connection.py`, and `asking.py` says how it is to route and reason. `answers.py` folds a stream into an
answer; `failures.py` puts what went wrong into our words, once; `library.py` keeps litellm on a thread of its
own; `counting.py` counts tokens of text. Nothing of litellm crosses the border: requests, answers and errors
are values of ours.
"""

from __future__ import annotations

from pi_ls.llm.answers import Completion, usage_from_litellm
from pi_ls.llm.chat import LitellmChat
from pi_ls.llm.counting import CountText, text_counter
from pi_ls.llm.failures import is_overflow_error
from pi_ls.llm.model import LitellmModel, Model, Request

__all__ = [
    "Completion",
    "CountText",
    "LitellmChat",
    "LitellmModel",
    "Model",
    "Request",
    "is_overflow_error",
    "text_counter",
    "usage_from_litellm",
]
