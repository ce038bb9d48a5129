"""The kernels against their plain twins: in Triton's interpreter on the CPU, compiled on a GPU."""

COMPARED = """
import sys, torch
from largeprompt.audit import Heads, clusters, subsets
device = sys.argv[1]
draw = torch.Generator(device).manual_seed(0)
normal = lambda *shape: torch.randn(*shape, generator=draw, device=device)
for heads, groups, width, causal in ((4, 2, 12, True), (2, 2, 16, False)):
    made = Heads(normal(2, heads, 300, 8), normal(2, groups, 300, 8), normal(2, groups, 300, width), None, 0.5, causal)
    some = made.at(torch.arange(130, 300, 40, device=device))
    draws = subsets.drawn(some, subsets.keys_read(some))
    rows = some.at(draws.chosen).scored()
    errors = subsets.fused_errors(rows, draws), subsets.plain_errors(rows, draws, slice(None))
    fused, plain = (subsets.medians(each, draws) for each in errors)
    assert float((fused / plain - 1).abs().max()) < 1e-5
sizes = [(1, 1), (2, 2), (5, 2)]
joint, before, weight = 3 * normal(3, 15, 700), normal(3, 15, 700), (normal(3, 700) > -1).float()
going = normal(3, 5) > -0.5
(fused, level), (plain, expected) = (
    each(joint, before.clone(), weight, sizes, going) for each in (clusters.fused_expectation, clusters.plain_expectation)
)
torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
torch.testing.assert_close(level, expected, rtol=1e-5, atol=1e-3)
assert bool((plain == before).any()) and bool((plain != before).any())
print("same")
"""


def test_kernels_give_the_numbers_of_their_twins(compare_kernels):
    compare_kernels(COMPARED)
