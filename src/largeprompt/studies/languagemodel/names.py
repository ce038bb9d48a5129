"""What the variables of the study's dataset are called; units in brackets, unless they are pure
numbers or names.
"""

from largeprompt.audit.kinds import NAMES as OF_AUDITS

OURS = {
    "text": "text that is read",
    "first": "what is done with the first token",
    "length": "tokens of the prefix [tokens]",
    "made_at": "tokens of the shorter prefix that foretells [tokens]",
    "layer": "layer of the model",
    "head": "head of the layer",
    "term": "part of the logarithm of the ratio of errors",
    "recent": "last tokens that the state reads exactly [tokens]",
    "replaced_recent": "last tokens that the state reads exactly, where heads are replaced "
    "[tokens]",
    "replaced_share": "share of the heads that are replaced",
    "components": "clusters of the state",
    "order": "order in which heads are replaced",
    "heads_replaced": "number of heads replaced",
    "law_error": "affine error that as many Gaussian tokens of these moments have",
    "law_slope": "power of the number of keys with which the law's squared error falls",
    "shape_share": "share of the squared affine error that stays however many keys there are",
    "finding_*": "whether the verdict is: *",
    "law_foretold": "affine error that a shorter prefix foretells by the law alone",
    "shape_foretold": "affine error that a shorter prefix foretells by law and shape",
    "explained": "logarithm of affine errors, longest prefix over a shorter one",
    "effective_share": "effective over real number of keys",
    "state_error": "error of a state of constant size, root mean square over queries, relative to "
    "the output",
    "size_of_state": "size of the state, where errors are measured [tokens of cache]",
    "state_size": "size of the state, where heads are replaced [tokens of cache]",
    "state_change": "change of the loss with heads read from a state [nats]",
    "loss": "loss of the next token, second half of the text [nats]",
    "shuffled_loss": "loss of the next token, tokens in random order [nats]",
    "change": "change of the loss with heads replaced [nats]",
    "within_change": "change of the loss with the heads within the tolerance replaced [nats]",
    "within_count": "number of heads within the tolerance",
}
# the first that fits counts
NAMES = OURS | {name: words for name, words in OF_AUDITS.items() if name not in OURS}
