"""The smallest models of many architectures, built from their config classes
with random weights.
"""

import pytest
import torch

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT = SIZES | {"vocab_size": 97, "max_position_embeddings": 128}
OFFSET = TEXT | {"pad_token_id": 1}
GROUPED = TEXT | TOKENS | {"num_key_value_heads": 1}
WIDE = GROUPED | {"head_dim": 16}
GPT = {
    "vocab_size": 97,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
T5 = {"vocab_size": 97, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
BOTH = {
    f"{part}_{name}": value
    for part in ("encoder", "decoder")
    for name, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 24))
}
BART = {"vocab_size": 97, "d_model": 16, "max_position_embeddings": 128} | BOTH | TOKENS
WHISPER = (
    {
        "vocab_size": 97,
        "d_model": 16,
        "num_mel_bins": 8,
        "max_source_positions": 64,
        "max_target_positions": 32,
    }
    | BOTH
    | TOKENS
)
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
LOCAL_EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
SMALL_MAMBA = {"mamba_d_state": 4, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1}
LATENT = {
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 6,
    "first_k_dense_replace": 2,
}
IMAGE = SIZES | {"image_size": 32, "patch_size": 4}
CONVOLUTIONS = {
    "conv_dim": (8, 8),
    "conv_stride": (4, 4),
    "conv_kernel": (4, 4),
    "num_feat_extract_layers": 2,
}
SOUND = (
    SIZES
    | CONVOLUTIONS
    | {"vocab_size": 97, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
)
WINDOW = {"sliding_window": 20}

AUDITED = {  # class, with /encoder for the encoder of an encoder-decoder, and its config
    # encoders of text
    "BertModel": TEXT,
    "RobertaModel": OFFSET,
    "ElectraModel": TEXT | {"embedding_size": 16},
    "DistilBertModel": {"vocab_size": 97, "dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2},
    "AlbertModel": TEXT | {"embedding_size": 8},  # one module for all layers
    "ModernBertModel": TEXT | TOKENS | {"cls_token_id": 1, "sep_token_id": 2},
    "EsmModel": OFFSET | {"mask_token_id": 3, "position_embedding_type": "rotary"},
    "T5Model/encoder": T5,  # relative biases
    "BartModel/encoder": BART,
    # causal
    "LlamaForCausalLM": GROUPED,
    "GPT2LMHeadModel": GPT,
    "GPTBigCodeForCausalLM": GPT,  # one key head
    "Qwen2ForCausalLM": GROUPED,
    "Qwen3ForCausalLM": WIDE,  # queries and keys normalized
    "MistralForCausalLM": GROUPED | WINDOW,
    "MixtralForCausalLM": GROUPED | LOCAL_EXPERTS,
    "GemmaForCausalLM": WIDE,
    # capped
    "Gemma2ForCausalLM": WIDE
    | WINDOW
    | {"attn_logit_softcapping": 0.5, "attn_implementation": "eager"},
    "Gemma3ForCausalLM": WIDE | WINDOW | {"layer_types": ["sliding_attention", "full_attention"]},
    "PhiForCausalLM": TEXT | TOKENS,
    "Phi3ForCausalLM": GROUPED,
    "Olmo2ForCausalLM": GROUPED,
    "Cohere2ForCausalLM": GROUPED | WINDOW,
    "StableLmForCausalLM": GROUPED,
    "Starcoder2ForCausalLM": GROUPED | {"sliding_window": None},
    "GPTNeoXForCausalLM": TEXT | TOKENS,
    "OPTForCausalLM": {"ffn_dim": 24, "word_embed_proj_dim": 16} | TEXT | TOKENS,
    "GptOssForCausalLM": WIDE | WINDOW | LOCAL_EXPERTS,  # learned sinks
    "GraniteForCausalLM": GROUPED,
    "SmolLM3ForCausalLM": GROUPED,
    "Glm4ForCausalLM": WIDE,
    "NemotronForCausalLM": GROUPED,
    # values narrower than keys
    "DeepseekV3ForCausalLM": GROUPED | LATENT | {"num_key_value_heads": 2},
    "Qwen3MoeForCausalLM": WIDE | EXPERTS,
    # hybrids
    "Lfm2ForCausalLM": GROUPED
    | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]},
    "JambaForCausalLM": GROUPED
    | {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_offset": 3,
        "expert_layer_period": 4,
    }
    | {"num_experts": 2, "mamba_d_state": 4, "mamba_dt_rank": 2, "use_mamba_kernels": False},
    "Qwen3NextForCausalLM": WIDE
    | EXPERTS
    | {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 4,
    }
    | {
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "shared_expert_intermediate_size": 8,
    },
    "BambaForCausalLM": GROUPED | SMALL_MAMBA | {"attn_layer_indices": [1]},
    "FalconH1ForCausalLM": GROUPED | SMALL_MAMBA | {"mamba_d_ssm": 32},  # both kinds in every layer
    "Zamba2ForCausalLM": GROUPED  # layers 1 and 3 share one block
    | {
        "num_hidden_layers": 4,
        "num_mem_blocks": 1,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "use_mem_rope": True,
    }
    | {
        "mamba_d_state": 4,
        "mamba_headdim": 8,
        "n_mamba_heads": 4,
        "mamba_ngroups": 1,
        "num_key_value_heads": 2,
    },
    # images and sounds
    "ViTModel": IMAGE,
    "Dinov2Model": IMAGE | {"mlp_ratio": 2},
    "SiglipVisionModel": IMAGE,
    "CLIPVisionModel": IMAGE,
    "BeitModel": IMAGE | {"use_relative_position_bias": True},
    "WhisperModel/encoder": WHISPER,
    "Wav2Vec2Model": SOUND,
    "ASTModel": SIZES
    | {
        "patch_size": 4,
        "frequency_stride": 4,
        "time_stride": 4,
        "max_length": 32,
        "num_mel_bins": 16,
    },
}
HYBRIDS = ("Lfm2ForCausalLM", "JambaForCausalLM", "Qwen3NextForCausalLM", "BambaForCausalLM")
# that attend; otherwise 0 and 1
LAYERS = {"Zamba2ForCausalLM": [1, 3]} | {name: [1] for name in HYBRIDS}
OUTSIDE = "computes its attention itself"
REFUSED = {  # class, config, and why
    "BloomForCausalLM": (GPT, OUTSIDE),
    "MptForCausalLM": (
        {"vocab_size": 97, "d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 128},
        OUTSIDE,
    ),
    "MPNetModel": (TEXT, OUTSIDE),
    "DebertaV2Model": (TEXT, OUTSIDE),
    "FalconForCausalLM": (TEXT | TOKENS, OUTSIDE),
    "WavLMModel": (SOUND, OUTSIDE),
    "MambaForCausalLM": (
        {"vocab_size": 97, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
        "no softmax attention",
    ),
    "T5Model": (T5, r"encoder-decoder.*model\.get_encoder\(\)"),
    "CLIPModel": (
        {"text_config": TEXT | TOKENS, "vision_config": IMAGE, "projection_dim": 8},
        r"2 stacks of layers.*: model\.text_model or model\.vision_model",
    ),
    "SwinModel": (
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        "different numbers of heads",
    ),
}
# it puts fewer through its interface, and cannot build Zamba 2
if transformers.__version__.startswith("5.0."):
    NEWER = ("ModernBertModel", "T5Model/encoder", "NemotronForCausalLM", "BeitModel")
    REFUSED |= {name: (AUDITED.pop(name), OUTSIDE) for name in NEWER} | {
        name: (REFUSED[name][0], OUTSIDE) for name in ("T5Model", "SwinModel")
    }
    REFUSED["CLIPModel"] = (REFUSED["CLIPModel"][0], "2 stacks of layers")
    del AUDITED["Zamba2ForCausalLM"]


def tiny_model(name):
    """The model in double precision, its weights large enough that caps, sinks
    and biases matter.
    """
    kind = getattr(transformers, name.removesuffix("/encoder"))
    config = AUDITED[name] if name in AUDITED else REFUSED[name][0]
    torch.manual_seed(0)
    model = (
        kind(kind.config_class(**config, experts_implementation="eager")).to(torch.float64).eval()
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(10.0)
            elif parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.get_encoder() if name.endswith("/encoder") else model


def tiny_inputs(model):
    """One text of 64 tokens, or an image or sound of about as many patches or frames."""
    draw = torch.Generator().manual_seed(0)
    shapes = {
        "pixel_values": (1, 3, 32, 32),
        "input_features": (1, 8, 128),
        "input_values": (1, 1024),
    }
    if type(model).__name__ == "ASTModel":
        shapes["input_values"] = (1, 32, 16)
    if model.main_input_name == "input_ids":
        return {"input_ids": torch.randint(3, 97, (1, 64), generator=draw)}
    return {
        model.main_input_name: torch.randn(
            shapes[model.main_input_name], generator=draw, dtype=torch.float64
        )
    }
