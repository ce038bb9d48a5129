"""How long is long enough: errors averaged over a random query, and the smallest prompt whose error is within a tolerance."""

from largeprompt.planning.average import QueryAverage, query_average
from largeprompt.planning.length import PromptLength, prompt_length

__all__ = ["PromptLength", "QueryAverage", "prompt_length", "query_average"]
