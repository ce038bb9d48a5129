"""On a GPU: drawn prompts, SGD, the exact law, prompts as measures, audits: ``python -m benchmarks
gpu``.
"""

import functools
import math

import torch

import largeprompt as lp
from benchmarks.training import stochastic_steps


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


def sampler(
    dtype: torch.dtype, length: int = 10**6, replicas: int = 256, dim: int = 16, labels: int = 1
) -> tuple[str, str, str]:
    """Tokens a second of the reduced sampler, and of normals written to memory."""
    eye = torch.eye(dim, dtype=dtype, device="cuda")
    zero = torch.zeros(dim, dtype=dtype, device="cuda")
    mu = lp.Gaussian(zero, eye)
    if labels > 1:
        weights = torch.full((labels,), 1 / labels, dtype=dtype, device="cuda")
        mu = lp.GaussianMixture(weights, zero.expand(labels, dim), eye.expand(labels, dim, dim))
    attention, z = lp.SoftmaxAttention(eye, eye), eye[0]
    generator = torch.Generator(device="cuda").manual_seed(0)
    ours = seconds(
        lambda: lp.sample_prompts(
            attention, mu, z, [length // 100, length], replicas, generator, reduced=True
        )
    )
    count = length * replicas
    buffer = torch.empty(min(count, 2**30), dtype=dtype, device="cuda")
    peer = seconds(lambda: buffer.normal_(generator=generator)) * count / buffer.numel()
    what = (
        f"reduced sampler, {str(dtype)[6:]}, {labels} component(s), L = {length:.0e}, "
        f"{replicas} prompts; peer: `normal_` to memory"
    )
    return (
        what,
        f"{peer / ours:.2f}",
        f"{count / ours / 1e9:.0f} G tokens/s; peer {count / peer / 1e9:.0f}",
    )


def audit() -> list[tuple[str, str, str]]:
    """A Llama-like language model of 0.85 billion parameters in bfloat16: time and memory of its
    audit against its forward.
    """
    import transformers

    from largeprompt.audit import audit_model

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
    }
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
            what = (
                f"audit of a 0.85 B Llama, bfloat16, {length:,} tokens, 32 positions{also}; "
                "peer: its forward"
            )
            found.append(
                (
                    what,
                    f"{ours / peer:.2f}; memory {most / least:.2f}",
                    f"{1000 * ours:.0f} ms; peer {1000 * peer:.1f}",
                )
            )
    return found


def peak(work) -> int:
    """Most bytes on the device while it runs."""
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated()


def copy_bandwidth() -> float:
    """Bytes a second that a copy on the device reads and writes: the limit of what is bound by
    memory.
    """
    x = torch.empty(2**30, dtype=torch.float32, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.numel() * 4 / seconds(lambda: y.copy_(x))


def full_sampler(
    law: str, dtype: torch.dtype, length: int = 10**6, replicas: int = 256, dim: int = 16
) -> tuple[str, str, str]:
    """Tokens a second of the sampler that draws every token; the least that it can do is to draw
    its normals.
    """
    eye = torch.eye(dim, dtype=dtype, device="cuda")
    mu = (
        lp.Gaussian(0 * eye[0], eye)
        if law == "Gaussian"
        else getattr(lp, law)(dim, dtype=dtype, device=eye.device)
    )
    attention, generator = (
        lp.SoftmaxAttention(eye, eye),
        torch.Generator(device="cuda").manual_seed(0),
    )
    ours = seconds(
        lambda: lp.sample_prompts(
            attention, mu, 0.3 * eye[0], [length // 100, length], replicas, generator
        ),
        3,
    )
    buffer = torch.empty(2**24 * dim, dtype=dtype, device="cuda")
    peer = seconds(lambda: buffer.normal_(generator=generator)) / 2**24
    rate = length * replicas / ours
    what = (
        f"full sampler, {law}, {str(dtype)[6:]}, L = {length:.0e}, {replicas} prompts, d = "
        f"{dim}; peer: `normal_` of its tokens"
    )
    return what, f"{rate * peer:.2f}", f"{rate / 1e9:.1f} G tokens/s; peer {1 / peer / 1e9:.0f}"


def stochastic_step(length: int = 10**4) -> tuple[str, str, str]:
    """A gradient over drawn prompts, and the same by drawn tokens and autograd."""
    ours, peer = (seconds(step) for step in stochastic_steps(length, torch.device("cuda")))
    what = f"one step of SGD, L = {length:.0e}, d = 16, batch 256; peer: drawn tokens and autograd"
    return what, f"{ours / peer:.2f}", f"{1000 * ours:.2f} ms; peer {1000 * peer:.2f}"


def exact_laws() -> list[tuple[str, str, str]]:
    """The exact law of Gaussian tokens for many queries, from its table; of other tokens, on the
    host.
    """
    eye = torch.eye(16, dtype=torch.float64, device="cuda")
    mu, attention = lp.Gaussian(0 * eye[0], eye), lp.SoftmaxAttention(eye, eye)
    z = (
        torch.randn(
            10**5,
            16,
            dtype=torch.float64,
            device="cuda",
            generator=torch.Generator(device="cuda").manual_seed(0),
        )
        / 4
    )
    one = seconds(lambda: lp.finite_prompt(attention, mu, z[: 10**4], 1000).mse)
    found = [("`finite_prompt`, Gaussian, 10⁴ queries, one length", "-", f"{1000 * one:.1f} ms")]
    lengths = [10**k for k in range(1, 11)]
    many = seconds(lambda: lp.finite_prompt(attention, mu, z, lengths).mse, 3)
    found.append(
        (
            "`finite_prompt`, Gaussian, 10⁵ queries, ten lengths",
            "-",
            f"{1e6 / many / 1e6:.0f} M pairs/s",
        )
    )
    spread = [round(10 ** (k / 10)) for k in range(3, 103)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for law in ("Rademacher", "Uniform", "Laplace"):
        tokens = getattr(lp, law)(4, device=eye.device)
        small = lp.SoftmaxAttention(eye[:4, :4], eye[:4, :4])
        rate = (
            50
            * len(spread)
            / seconds(lambda: lp.finite_prompt(small, tokens, 0.8 * z[:50, :4], spread).mse, 3)  # noqa: B023
        )
        found.append(
            (
                f"`finite_prompt`, {law}, d = 4, 50 queries, 100 lengths, one core of the host",
                "-",
                f"{rate:,.0f} pairs/s",
            )
        )
    torch.set_num_threads(threads)
    return found


def empirical() -> list[tuple[str, str, str]]:
    """Prompts read as measures, against fused attention and against a copy of the tokens."""
    bandwidth, found = copy_bandwidth(), []
    for length, queries, dim, dtype in (
        (10**5, 1024, 64, torch.float32),
        (10**5, 1024, 64, torch.bfloat16),
        (10**6, 1, 64, torch.float32),
        (10**8, 1, 16, torch.float32),
    ):
        tokens, query = (torch.randn(n, dim, dtype=dtype, device="cuda") for n in (length, queries))
        prompt, one = lp.Empirical(tokens), torch.eye(dim, dtype=dtype, device="cuda")
        head, small = lp.SoftmaxAttention(one, one), query / math.sqrt(dim)
        ours = seconds(lambda: head(prompt, small))  # noqa: B023
        what = (
            f"`Empirical`, {str(dtype)[6:]}, L = {length:.0e}, {queries} queries, d = {dim}; "
            "peer: fused attention"
        )
        share = (
            f"; {tokens.numel() * tokens.element_size() / ours / bandwidth:.2f} of a copy's "
            "bandwidth"
            if queries == 1
            else ""
        )
        if length > 10**6:
            base = torch.cuda.memory_allocated()
            more = (peak(lambda: head(prompt, small)) - base) / 2**20  # noqa: B023
            found.append(
                (
                    what.partition(";")[0],
                    "-",
                    f"{1000 * ours:.2f} ms{share}; {more:.1f} MiB beside the tokens",
                )
            )
            continue
        fused = torch.nn.functional.scaled_dot_product_attention
        peer = seconds(lambda: fused(query[None, None], tokens[None, None], tokens[None, None]))  # noqa: B023
        found.append(
            (what, f"{ours / peer:.2f}", f"{1000 * ours:.2f} ms{share}; peer {1000 * peer:.2f}")
        )
    return found


def rows() -> list[tuple[str, str, str]]:
    """All measurements; none without a GPU."""
    if not torch.cuda.is_available():
        return []
    return [
        sampler(torch.float32),
        sampler(torch.float64),
        sampler(torch.float32, length=10**8, replicas=8),
        sampler(torch.float32, labels=4),
        full_sampler("Gaussian", torch.float32),
        full_sampler("Gaussian", torch.float64),
        *(
            full_sampler(law, torch.float32, replicas=64)
            for law in ("Rademacher", "Uniform", "Laplace")
        ),
        stochastic_step(),
        stochastic_step(10**5),
        *exact_laws(),
        *empirical(),
        *audit(),
    ]


if __name__ == "__main__":
    for row in rows():
        print(" | ".join(row))
