"""The list of claims against the studies."""

import re

from largeprompt.studies import registry
from largeprompt.studies.claims import CLAIMS


def test_every_claim_is_tested_by_a_study():
    """C1 to C7 and every experiment asked for."""
    tested = {claim.id for name in registry.OURS for claim in registry.study(name).claims}
    assert tested == {claim.id for claim in CLAIMS}


def test_claims_are_said_in_a_sentence():
    assert all(
        len(claim.sentence.split()) <= 25 and len(re.findall(r"\.(?!\d)", claim.sentence)) == 1
        for claim in CLAIMS
    )
    assert {claim.id for claim in CLAIMS if not claim.question} >= {f"C{i}" for i in range(1, 8)}


def test_every_card_has_a_picture():
    drawn = [
        card
        for name in registry.OURS
        for figure in registry.study(name).figures
        for card in figure.cards
    ]
    assert len(drawn) == len(set(drawn))
    assert {claim.id for claim in CLAIMS if not claim.experiment} <= set(drawn)
