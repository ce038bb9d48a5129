"""Which heads to run by their read-outs, as a file that a program can read."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Literal, Self

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.files import from_json, read_plain

Head = tuple[int, int]
Kind = Literal["mean", "affine", "mixture"]


def checked_heads(heads: Any) -> tuple[Head, ...]:
    """Pairs (layer, head) of numbers from 0 on."""
    allowed, found = "pairs (layer, head), counted from 0", []
    for pair in validation.listed("heads", heads, allowed):
        numbers = [
            validation.integer("heads", each, minimum=0)
            for each in validation.listed("heads", pair, allowed)
        ]
        if len(numbers) != 2:
            raise InvalidArgumentError("heads", validation.text(pair), allowed)
        found.append((numbers[0], numbers[1]))
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Heads to be replaced by a read-out, and what that does to the model.

    Attributes
    ----------
    heads
        Pairs (layer, head) counted from 0, those to be replaced first in front.
    layers, heads_in_layer
        The layers of the model that attend, and how many heads each has.
    measure
        What is kept: 'cosine' of the embeddings, or 'loss' of the next token before over after, for
        language models.
    budget, kept, confirmed
        How much of it had to be kept; how much is on the texts that chose the heads, and on others
        (None where there were none).
    kept_error, confirmed_error
        Standard errors of these over texts; None of one text.
    kind, components, sinks
        The read-out, as :func:`linearize` takes it.

    Examples
    --------
    >>> from largeprompt.audit import Plan
    >>> plan = Plan(heads=((0, 1), (1, 0), (1, 1)), layers=(0, 1), heads_in_layer=2)
    >>> plan.full_attention, plan.linear_layers
    ([[1, 0], [0, 0]], [1])
    """

    heads: tuple[Head, ...]
    layers: tuple[int, ...]
    heads_in_layer: int
    measure: Literal["cosine", "loss"] = "cosine"
    budget: float = 1.0
    kept: float = 1.0
    confirmed: float | None = None
    kind: Kind = "affine"
    components: int = 8
    sinks: int = 1
    kept_error: float | None = None
    confirmed_error: float | None = None

    def __post_init__(self) -> None:
        layers = validation.listed("layers", self.layers, "layers")
        layers = [validation.integer("layers", each, minimum=0) for each in layers]
        checked: dict[str, Any] = {"heads": checked_heads(self.heads), "layers": tuple(layers)}
        for name, least in (("heads_in_layer", 1), ("components", 1), ("sinks", 0)):
            checked[name] = validation.integer(name, getattr(self, name), minimum=least)
        for name in ("budget", "kept", "confirmed", "kept_error", "confirmed_error"):
            if getattr(self, name) is not None or name in ("budget", "kept"):
                checked[name] = validation.number(name, getattr(self, name))
        validation.choice("measure", self.measure, ("cosine", "loss"))
        validation.choice("kind", self.kind, ("mean", "affine", "mixture"))
        validation.store(self, **checked)

    @property
    def full_attention(self) -> list[list[int]]:
        """One row for each layer that attends: 0 for heads that are replaced, 1 for others."""
        return [
            [int((layer, head) not in self.heads) for head in range(self.heads_in_layer)]
            for layer in self.layers
        ]

    @property
    def linear_layers(self) -> list[int]:
        """Layers all of whose heads are replaced."""
        rows = zip(self.layers, self.full_attention, strict=True)
        return [layer for layer, row in rows if not any(row)]

    def save(self, path: Path | str) -> Path:
        """Write the plan as JSON, with ``full_attention`` and ``linear_layers``."""
        target = Path(path)
        target.write_text(self.json(), encoding="utf-8")
        return target

    def json(self) -> str:
        """The plan as JSON text."""
        derived = {"full_attention": self.full_attention, "linear_layers": self.linear_layers}
        return json.dumps(dataclasses.asdict(self) | derived, indent=1) + "\n"

    def export(
        self, format: Literal["duoattention", "shares"], key_value_heads: int | None = None
    ) -> str:
        """Return the plan as text that other tools read, by key-value head.

        A key-value head has the share of its query heads that keep full attention: its cache can be
        dropped where the share is 0.

        Parameters
        ----------
        format
            'duoattention': one row a layer, tab-separated, as in its ``full_attention_heads.tsv``.
            'shares': JSON, ``{"L0H0": 0.5, ...}``.
        key_value_heads
            How many a layer has (``config.num_key_value_heads``); as many as query heads when left
            out.

        Examples
        --------
        >>> from largeprompt.audit import Plan
        >>> plan = Plan(heads=((0, 1), (1, 0), (1, 1)), layers=(0, 1), heads_in_layer=2)
        >>> plan.export("shares", key_value_heads=1)
        '{"L0H0": 0.5, "L1H0": 0.0}'
        """
        validation.choice("format", format, ("duoattention", "shares"))
        given = self.heads_in_layer if key_value_heads is None else key_value_heads
        groups = validation.integer("key_value_heads", given, maximum=self.heads_in_layer)
        if self.heads_in_layer % groups:
            allowed = f"a divisor of the {self.heads_in_layer} heads of a layer"
            raise InvalidArgumentError("key_value_heads", str(groups), allowed)
        size = self.heads_in_layer // groups
        shares = [
            [sum(row[start : start + size]) / size for start in range(0, len(row), size)]
            for row in self.full_attention
        ]
        if format == "duoattention":
            return "".join("\t".join(map(str, row)) + "\n" for row in shares)
        named = zip(self.layers, shares, strict=True)
        return json.dumps({f"L{i}H{j}": x for i, row in named for j, x in enumerate(row)})

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what :meth:`save` wrote, or the ``heads.json`` of an audit."""
        try:
            found: Any = from_json(read_plain(Path(os.path.realpath(path)), 2**26))
            known = [field.name for field in dataclasses.fields(cls) if field.name in found]
            return cls(**{name: found[name] for name in known})
        except OSError as error:
            allowed = f"a file that can be read ({error.strerror})"
        except (ValueError, TypeError):
            allowed = "the JSON file of a plan, as Plan.save and largeprompt audit write it"
        raise InvalidArgumentError("heads", repr(str(path)), allowed)
