"""What a transformer can be made of: options checked together, before anything is drawn."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from gradflow.errors import FlowError, shown, unknown, whole_number
from gradflow.models.transformer.positions import POSITIONS

NORMS = ("layer", "rms")
FEED_FORWARDS = ("gelu", "swiglu")
TABLES = ("add", "concat")  # of positions


@dataclasses.dataclass(frozen=True)
class Design:
    """Sizes and kinds of the parts of a transformer, checked; what they mean is in `Transformer.init`."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    mlp: str | None
    mlp_width: int
    norm: str | None
    positions: str | None
    max_length: int
    gated: bool
    biases: bool
    tied: bool
    causal: bool
    classes: int
    dtype: Any

    @property
    def token_width(self) -> int:
        """Width of an embedded token: half of the model's where positions are concatenated."""
        return self.width // 2 if self.positions == "concat" else self.width

    @property
    def position_width(self) -> int:
        """Width of a row of the table of positions."""
        return self.width - self.token_width if self.positions == "concat" else self.width


def design(options: dict[str, Any]) -> Design:
    """Return the design that options describe.

    Args:
        options: what was passed to `Transformer.init`, by name.

    Returns:
        The design, with every open size filled in.

    Raises:
        FlowError: if a size, a kind or a combination cannot be used.
    """
    sizes = {name: whole_number(name, options[name]) for name in ("vocabulary", "width", "layers", "heads")}
    for name, kinds in (("norm", NORMS), ("mlp", FEED_FORWARDS), ("positions", POSITIONS)):
        if options[name] is not None and options[name] not in kinds:
            raise unknown(name, options[name], kinds)
    for name in ("gated", "biases", "tied", "causal"):
        if not isinstance(options[name], bool):
            raise FlowError(f"{name} is {shown(options[name])}: pass True or False")
    usual = {"head_width": sizes["width"] // sizes["heads"], "kv_heads": sizes["heads"]}
    usual |= {"mlp_width": 4 * sizes["width"], "classes": sizes["vocabulary"]}
    if options["head_width"] is None and sizes["width"] % sizes["heads"]:
        raise FlowError(
            f"heads is {sizes['heads']}, which does not divide width {sizes['width']}: pass a divisor, or head_width"
        )
    sizes |= {n: size if options[n] is None else whole_number(n, options[n]) for n, size in usual.items()}
    given: dict[str, Any] = {**options, **sizes}
    given |= {"dtype": _float_type(options["dtype"]), "max_length": _max_length(options)}
    made = Design(**given)
    _check_sizes(made)
    return made


def _check_sizes(made: Design) -> None:
    if made.heads % made.kv_heads:
        raise FlowError(f"kv_heads is {made.kv_heads}: it must divide heads, {made.heads}, so that each serves as many")
    if made.positions == "concat" and made.width % 2:
        raise FlowError(f"width is {made.width}: positions='concat' takes half of it, pass an even width")
    if made.positions == "rotary" and made.head_width % 2:
        raise FlowError(f"head_width is {made.head_width}: positions='rotary' turns pairs, pass an even one")
    if made.tied and (made.positions == "concat" or made.classes != made.vocabulary):
        raise FlowError(
            f"tied is True with classes {made.classes}, vocabulary {made.vocabulary} and positions "
            f"{made.positions!r}: a tied head needs as many classes as tokens and no concatenated positions"
        )


def _max_length(options: dict[str, Any]) -> int:
    positions, length = options["positions"], options["max_length"]
    if positions not in TABLES:
        return 0
    if length is None:
        raise FlowError(f"max_length is None: positions={positions!r} is a table, pass its length")
    return whole_number("max_length", length)


def _float_type(dtype: Any) -> Any:
    try:
        found = jnp.zeros((), dtype).dtype if dtype is not None else jnp.result_type(float)
    except TypeError:
        found = None
    if found is None or not jnp.issubdtype(found, jnp.floating):
        raise FlowError(f"dtype is {shown(dtype)}: pass a float type, such as 'float32'")
    return found
