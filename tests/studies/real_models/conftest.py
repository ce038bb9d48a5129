"""The study in a small setting, with small models of random weights; one reads letters."""

import json

import pytest
import torch

from largeprompt.studies.real_models.config import RealModelsConfig
from largeprompt.studies.real_models.study import STUDY
from largeprompt.studies.real_models.table_model import TableTransformer

LETTERS = "abcdefghijklmnopqrstuvwxyz .,"
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
SHAPE = {"features": 6, "width": 16, "heads": 2, "hidden": 32, "layers": 2, "classes": 10}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A language model trained to read 256 letters, so its config says, and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    place = tmp_path_factory.mktemp("weights")
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        config = transformers.LlamaConfig(vocab_size=len(LETTERS), **SIZES)
        model = transformers.LlamaForCausalLM(config)
        for layer in model.model.layers:  # scores whose variance is about 1
            layer.self_attn.q_proj.weight.data.mul_(8.0)
            layer.self_attn.k_proj.weight.data.mul_(8.0)
    model.save_pretrained(place)
    words = {letter: i for i, letter in enumerate(LETTERS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=" "))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    reader = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token=" ")
    reader.save_pretrained(place)
    return place


@pytest.fixture(scope="session")
def table_folder(tmp_path_factory):
    """A model of tables."""
    save_file = pytest.importorskip("safetensors.torch").save_file
    place = tmp_path_factory.mktemp("tables")
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        save_file(TableTransformer(**SHAPE).state_dict(), place / "model.safetensors")
    (place / "config.json").write_text(json.dumps(SHAPE))
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
def config(folder, table_folder, files):
    return RealModelsConfig(
        parts=("heads", "replacement", "temperature", "tables"),
        language_model=str(folder),
        table_model=str(table_folder),
        texts=tuple(files),
        lengths=(64, 128, 512),
        queries=4,
        replaced_length=64,
        recent=(4, 16),
        replaced_shares=(0.25, 0.5),
        long_texts=tuple(files[:2]),
        longer=(2,),
        rows=(32, 64, 128),
        tables=2,
        answered=4,
        columns=3,
    )


@pytest.fixture(scope="session")
def data(config):
    """Computed once; copy before changing it."""
    return STUDY.run(config)
