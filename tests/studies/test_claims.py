"""The list of claims against the studies."""

from largeprompt.studies import registry
from largeprompt.studies.claims import CLAIMS


def test_every_claim_is_tested_by_a_study():
    """C1 to C7 and every experiment asked for."""
    tested = {claim.id for name in registry.OURS for claim in registry.study(name).claims}
    assert tested == {claim.id for claim in CLAIMS}
