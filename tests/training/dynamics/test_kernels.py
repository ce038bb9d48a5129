"""The kernel of two normals a token against plain sums over the same: in Triton's interpreter on the CPU, compiled on a GPU."""

COMPARED = """
import sys, torch
from largeprompt.sampling import counter
from largeprompt.training.dynamics import kernels
device = sys.argv[1]
for rows, length in ((2, 5000), (1, 1), (3, 128)):
    draw = torch.Generator().manual_seed(0)
    size, across, rest = (torch.rand(rows, 1, generator=draw, dtype=torch.float64) + 0.2 for _ in range(3))
    there, seed = [part.to(device) for part in (size, across, rest)], torch.tensor([77], device=device)
    sums, gram = kernels.softmax_sums(*there, length, seed)
    place, zero = torch.arange(length).expand(rows, -1), torch.zeros(rows, length, dtype=torch.int64)
    replica = torch.arange(rows).unsqueeze(-1).expand(rows, length)
    xi = counter.normals(counter.philox(77, place, zero, replica, zero), torch.float64)
    weights = torch.softmax(size * xi[..., 0], -1)
    pair = torch.stack([weights, weights * (across * xi[..., 0] + rest * xi[..., 1])], 1)
    torch.testing.assert_close(sums.cpu(), pair @ xi, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(gram.cpu(), pair @ pair.mT, rtol=1e-11, atol=1e-15)
print("same")
"""


def test_sums_are_the_plain_ones(compare_kernels):
    compare_kernels(COMPARED)
