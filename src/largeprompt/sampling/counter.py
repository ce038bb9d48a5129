"""Random numbers by place: the numbers of token n of replica r depend on (seed, n, r) alone, not on who asks or in which order.

Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011) maps a counter of four 32-bit words, under a key of two, to four words that pass
for independent. One round is

    (c₀, c₁, c₂, c₃) -> (hi(M₁c₂) ⊕ c₁ ⊕ k₀, lo(M₁c₂), hi(M₀c₀) ⊕ c₃ ⊕ k₁, lo(M₀c₀)),   k₀ += W₀, k₁ += W₁,

and ten are done. Words become uniforms, and pairs of uniforms normals, √(-2 ln u) (cos, sin)(2π(v - ½)). Plain PyTorch here, on any
device; ``fused`` has the same in a kernel.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

WORD = 2**32 - 1
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10


def philox(seed: int, c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 bits for each counter; counters and words are int64 tensors of one broadcast shape."""
    key0, key1 = seed & WORD, (seed >> 32) & WORD
    for _ in range(ROUNDS):
        high0, low0 = _product(c0, MULTIPLIERS[0])
        high1, low1 = _product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ key0, low1, high0 ^ c3 ^ key1, low0
        key0, key1 = (key0 + WEYL[0]) & WORD, (key1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def _product(word: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """High and low word of a product of two words; by halves, since int64 has a sign."""
    low, high = (word & 0xFFFF) * factor, (word >> 16) * factor
    middle = high + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def normals(words: tuple[Tensor, Tensor, Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """Standard normals, one for each word in float32 and one for two words in float64; the last dimension holds them in order."""
    uniform = uniforms(words, dtype)
    radius = torch.sqrt(-2 * torch.log(uniform[..., 0::2]))
    angle = 2 * math.pi * (uniform[..., 1::2] - 0.5)
    return torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), -1).flatten(-2)


def uniforms(words: tuple[Tensor, Tensor, Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """Numbers in (0, 1]: (r + ½) 2⁻³² from one word in float32; 53 bits and a half from two words in float64."""
    if dtype == torch.float32:
        return torch.stack(words, -1).to(dtype) * 2.0**-32 + 2.0**-33
    high, low = torch.stack(words[::2], -1), torch.stack(words[1::2], -1)
    return (((high >> 5) * 2**26 + (low >> 6)).to(dtype) + 0.5) * 2.0**-53


def per_counter(dtype: torch.dtype) -> int:
    """Normals that one counter gives."""
    return 4 if dtype == torch.float32 else 2
