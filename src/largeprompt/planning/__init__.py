"""How long is long enough, and how attention should change with length."""

from largeprompt.planning.average import QueryAverage, query_average
from largeprompt.planning.dependent import effective_length
from largeprompt.planning.length import PromptLength, prompt_length
from largeprompt.planning.scaling import (
    length_scaling,
    log_n_scaling,
    longrope_scaling,
    output_scale,
    yarn_scaling,
)

__all__ = [
    "PromptLength",
    "QueryAverage",
    "effective_length",
    "length_scaling",
    "log_n_scaling",
    "longrope_scaling",
    "output_scale",
    "prompt_length",
    "query_average",
    "yarn_scaling",
]
