"""The kernel that reads tokens once against plain sums: in Triton's interpreter on the CPU, compiled on a GPU."""

COMPARED = """
import sys, torch
from largeprompt.measures import kernels
device = sys.argv[1]
draw = torch.Generator(device).manual_seed(0)
for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-11), (torch.bfloat16, 0.1)):
    for batch, count, dim, tilts in ((2, 5000, 7, 2), (1, 4097, 64, 8), (3, 1, 1, 1)):
        tokens = torch.randn(batch, count + 3, dim, generator=draw, device=device).to(dtype)[:, :count]  # a part of a larger array
        u = torch.randn(batch, tilts, dim, generator=draw, device=device).to(dtype)
        logs, means = kernels.tilted_sums(u, tokens)
        scores = u.double() @ tokens.double().mT
        torch.testing.assert_close(logs.double(), torch.logsumexp(scores, -1), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(means.double(), torch.softmax(scores, -1) @ tokens.double(), rtol=tolerance, atol=tolerance)
print("same")
"""


def test_sums_are_the_plain_ones(compare_kernels):
    compare_kernels(COMPARED)
