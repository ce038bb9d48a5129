"""Which contexts of a Markov chain are visited for ever: the graph of its possible steps."""

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError


def recurrent_contexts(rows: Tensor, successors: Tensor) -> Tensor:
    """Whether each context is in the one closed class, which must have no period.

    ``rows`` are P(next | context), shape (contexts, symbols); ``successors`` the
    context after each.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    possible = (rows > 0).numpy()
    source, target = np.nonzero(possible)[0], successors.numpy()[possible]
    graph = csr_array((np.ones(len(source)), (source, target)), shape=(len(rows),) * 2)
    count, label = connected_components(graph, connection="strong")
    closed = np.setdiff1d(np.arange(count), label[source][label[source] != label[target]])
    if len(closed) > 1:
        given = f"a reducible chain: {len(closed)} classes of contexts that are never left"
        allowed = "a chain with one such class, hence one stationary law"
        remedy = "Treat each class as a chain, or give every symbol a positive probability."
        raise InvalidArgumentError("transition", given, allowed, remedy)
    inside = label == closed[0]
    reached, before = breadth_first_order(graph, int(np.flatnonzero(inside)[0]))
    level = np.zeros(len(rows), dtype=np.int64)
    for state in reached[1:]:
        level[state] = level[before[state]] + 1
    edges = inside[source]
    period = int(np.gcd.reduce(level[source[edges]] + 1 - level[target[edges]]))
    if period != 1:
        given = f"a periodic chain of period {period}"
        remedy = "Give it a small probability to stay: (1 - h) P + h I."
        raise InvalidArgumentError("transition", given, "an aperiodic chain", remedy)
    return torch.from_numpy(inside)
