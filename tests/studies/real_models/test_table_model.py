"""The forward pass against PyTorch's own encoder layer, and what the order of the rows does:
nothing.
"""

import pytest
import torch

from largeprompt.errors import InvalidArgumentError
from largeprompt.studies.real_models.table_model import TableTransformer, load, prepared


@pytest.fixture
def table(table_folder):
    draw = torch.Generator().manual_seed(1)
    rows = torch.randn(2, 12, 6, generator=draw)
    return load(table_folder), rows, torch.randint(3, (2, 9), generator=draw)


def test_layers_are_those_of_pytorch_with_a_mask(table):
    """Nobody reads the three rows without a label: the same as a mask over their columns."""
    model, rows, labels = table
    forbidden = torch.zeros(12, 12, dtype=torch.bool)
    forbidden[:, 9:] = True
    hidden = model.encoder(rows)
    hidden[:, :9] += model.y_encoder(labels[..., None].float())
    for layer in model.layers:
        # without dropout: training turns the fused path off
        hidden = layer.train()(hidden, src_mask=forbidden)
    torch.testing.assert_close(
        model(rows, labels), model.decoder(hidden[:, 9:]), rtol=1e-4, atol=1e-5
    )


def test_context_is_a_set(table):
    model, rows, labels = table
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    other = torch.cat([rows[:, order], rows[:, 9:]], 1)
    torch.testing.assert_close(
        model(other, labels[:, order]), model(rows, labels), rtol=1e-4, atol=1e-5
    )


def test_visitor_sees_the_heads(table):
    model, rows, labels = table
    seen = {}

    def visitor(layer, heads):
        seen[layer] = tuple(heads.query.shape), tuple(heads.key.shape)

    model(rows, labels, visitor)
    assert seen == dict.fromkeys(range(2), ((2, 2, 12, 8), (2, 2, 9, 8)))


def test_prepared_rows_are_standardized_by_the_context_alone():
    draw = torch.Generator().manual_seed(3)
    context, others = 5 + 3 * torch.randn(1, 40, 2, generator=draw), torch.full((1, 1, 2), 5.0)
    rows = prepared(context, others, 6)
    assert rows.shape == (1, 41, 6)
    # 6 features over 2 columns
    torch.testing.assert_close(rows[:, :40, :2].std(1), torch.full((1, 2), 3.0))
    assert float(rows[..., 2:].abs().max()) == 0.0


def test_bad_input_is_refused(table, tmp_path):
    model, rows, _ = table
    with pytest.raises(InvalidArgumentError, match="context"):
        prepared(rows, rows, 5)
    with pytest.raises(InvalidArgumentError, match="make real"):
        load(tmp_path)
    assert isinstance(model, TableTransformer)
