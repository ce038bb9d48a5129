"""The study in a small setting, with a small model of random weights that reads letters."""

import pytest
import torch

from largeprompt.studies.languagemodel.parts import LanguageModelConfig
from largeprompt.studies.languagemodel.study import STUDY

LETTERS = "abcdefghijklmnopqrstuvwxyz .,"
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SIZES |= {
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    transformers, tokenizers = (
        pytest.importorskip("transformers"),
        pytest.importorskip("tokenizers"),
    )
    place = tmp_path_factory.mktemp("weights")
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        config = transformers.LlamaConfig(vocab_size=len(LETTERS), **SIZES)
        model = transformers.LlamaForCausalLM(config)
        for layer in model.model.layers:  # scores whose variance is about 1
            layer.self_attn.q_proj.weight.data.mul_(8.0)
            layer.self_attn.k_proj.weight.data.mul_(8.0)
    model.save_pretrained(place)
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({letter: i for i, letter in enumerate(LETTERS)}, unk_token=" ")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token=" ").save_pretrained(
        place
    )
    return place


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Three texts of random letters, each several times in a row: what a model with tied embeddings
    guesses, untrained as it is.
    """
    place, found = tmp_path_factory.mktemp("texts"), []
    for seed in range(3):
        draw = torch.rand(100, generator=torch.Generator().manual_seed(seed)).square()
        found.append(place / f"{seed}.txt")
        found[-1].write_text("".join(7 * LETTERS[int(len(LETTERS) * each)] for each in draw))
    return [str(each) for each in found]


@pytest.fixture(scope="session")
def config(folder, files):
    options = {
        "queries": 4,
        "recent": (0, 8, 32),
        "components": (0, 1),
        "replaced_length": 64,
        "replaced_recent": (4, 16),
        "steps": 2,
    }
    shares = {"replaced_shares": (0.25, 0.5)}
    return LanguageModelConfig(
        weights=str(folder), texts=tuple(files), lengths=(64, 128, 512), **options, **shares
    )


@pytest.fixture(scope="session")
def data(config):
    """Computed once; copy before changing it."""
    return STUDY.run(config)


@pytest.fixture(scope="session")
def random_layer():
    """Queries, keys and values of four heads in two groups over 200 tokens."""
    draw = torch.Generator().manual_seed(0)
    counts = (4, 2, 2)
    return tuple(torch.randn(1, n, 200, 4, generator=draw, dtype=torch.float64) for n in counts)
