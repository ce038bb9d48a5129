"""How long is long enough: errors averaged over a random query, and the smallest prompt whose error
is within a tolerance.
"""

from largeprompt.planning.average import QueryAverage, query_average
from largeprompt.planning.dependent import effective_length
from largeprompt.planning.length import PromptLength, prompt_length

__all__ = ["PromptLength", "QueryAverage", "effective_length", "prompt_length", "query_average"]
