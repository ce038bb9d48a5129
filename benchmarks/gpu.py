"""On a GPU: the fused sampler against plain draws, the exact law, and prompts read as measures; ``python -m benchmarks gpu``."""

import functools
import math

import torch

import largeprompt as lp


def seconds(work, repeats: int = 7) -> float:
    """Median time of a call, by device events."""
    for _ in range(2):
        work()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return sorted(times)[repeats // 2]


def sampler(dtype: torch.dtype, length: int = 10**6, replicas: int = 256, dim: int = 16, labels: int = 1) -> tuple[str, str, str]:
    """Tokens a second of the reduced sampler, and of normals written to memory."""
    eye = torch.eye(dim, dtype=dtype, device="cuda")
    zero = torch.zeros(dim, dtype=dtype, device="cuda")
    mu = lp.Gaussian(zero, eye)
    if labels > 1:
        weights = torch.full((labels,), 1 / labels, dtype=dtype, device="cuda")
        mu = lp.GaussianMixture(weights, zero.expand(labels, dim), eye.expand(labels, dim, dim))
    attention, z = lp.SoftmaxAttention(eye, eye), eye[0]
    generator = torch.Generator(device="cuda").manual_seed(0)
    ours = seconds(lambda: lp.sample_prompts(attention, mu, z, [length // 100, length], replicas, generator, reduced=True))
    count = length * replicas
    buffer = torch.empty(count, dtype=dtype, device="cuda")
    peer = seconds(lambda: buffer.normal_(generator=generator))
    what = (
        f"reduced sampler, {str(dtype)[6:]}, {labels} component(s), L = {length:.0e}, {replicas} prompts; peer: `normal_` to memory"
    )
    return what, f"{peer / ours:.2f}", f"{count / ours / 1e9:.0f} G tokens/s; peer {count / peer / 1e9:.0f}"


def audit() -> list[tuple[str, str, str]]:
    """A Llama-like language model of 0.85 billion parameters in bfloat16: time and memory of its audit against its forward."""
    import transformers

    from largeprompt.audit import audit_model

    torch.manual_seed(0)
    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 32}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=8, max_position_embeddings=32768)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    forward, found = torch.inference_mode()(lambda text: model(**text, use_cache=False)), []
    for length in (2048, 8192, 32768):
        text = {"input_ids": torch.randint(3, 32_000, (1, length), device="cuda")}
        peer, least = seconds(lambda: forward(text)), peak(lambda: forward(text))  # noqa: B023
        for components in ((), (1, 2, 4, 8, 16)):
            work = functools.partial(audit_model, model, text, components=components)
            ours, most = seconds(work, 3), peak(work)
            also = ", mixtures" if components else ""
            what = f"audit of a 0.85 B Llama, bfloat16, {length:,} tokens, 32 positions{also}; peer: its forward"
            found.append((what, f"{ours / peer:.2f}; memory {most / least:.2f}", f"{1000 * ours:.0f} ms; peer {1000 * peer:.1f}"))
    return found


def peak(work) -> int:
    """Most bytes on the device while it runs."""
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated()


def rows() -> list[tuple[str, str, str]]:
    """All measurements; none without a GPU."""
    if not torch.cuda.is_available():
        return []
    found = [
        sampler(torch.float32),
        sampler(torch.float64),
        sampler(torch.float32, labels=4),
        sampler(torch.float32, length=2**32 + 5, replicas=8),
    ]
    eye = torch.eye(16, dtype=torch.float64, device="cuda")
    mu, attention = lp.Gaussian(0 * eye[0], eye), lp.SoftmaxAttention(eye, eye)
    z = torch.randn(10_000, 16, dtype=torch.float64, device="cuda") / 4
    time = seconds(lambda: lp.finite_prompt(attention, mu, z, 1000).mse, 3)
    found.append(("`finite_prompt`, 10⁴ queries, one length", "-", f"{1000 * time:.1f} ms"))
    for length, queries, dim, dtype in (
        (10**5, 1024, 64, torch.float32),
        (10**5, 1024, 64, torch.bfloat16),
        (10**6, 1, 64, torch.float32),
    ):
        tokens, query = (torch.randn(n, dim, dtype=dtype, device="cuda") for n in (length, queries))
        prompt, one = lp.Empirical(tokens), torch.eye(dim, dtype=dtype, device="cuda")
        head = lp.SoftmaxAttention(one, one)
        ours = seconds(lambda: head(prompt, query / math.sqrt(dim)))  # noqa: B023
        fused = torch.nn.functional.scaled_dot_product_attention
        peer = seconds(lambda: fused(query[None, None], tokens[None, None], tokens[None, None]))  # noqa: B023
        what = f"`Empirical`, {str(dtype)[6:]}, L = {length:.0e}, {queries} queries, d = {dim}; peer: fused attention"
        found.append((what, f"{ours / peer:.2f}", f"{1000 * ours:.2f} ms; peer {1000 * peer:.2f}"))
    return found + audit()


if __name__ == "__main__":
    for row in rows():
        print(" | ".join(row))
