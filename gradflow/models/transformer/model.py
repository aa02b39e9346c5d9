"""Transformers, from tokens to logits, one sequence at a time; `jax.vmap` maps them over several."""

import math
from typing import Any, Literal, NamedTuple, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gradflow.activations import AbstractActivation
from gradflow.errors import FlowError, is_traced
from gradflow.models.attention.arguments import as_mask
from gradflow.models.attention.kernels import AbstractKernel
from gradflow.models.draws import as_key, draw_within
from gradflow.models.product import product
from gradflow.models.transformer.attention import SelfAttention
from gradflow.models.transformer.block import Norm, TransformerBlock, normalised
from gradflow.models.transformer.design import TABLES, Design, design
from gradflow.models.transformer.feed_forward import Gelu, SwiGLU
from gradflow.models.transformer.positions import Rotary

_NORMS = {"layer": eqx.nn.LayerNorm, "rms": eqx.nn.RMSNorm}


class Capture(NamedTuple):
    """What happened inside a transformer, layer by layer.

    Attributes:
        attention: weights; zero where masked.
        hidden: the residual stream after each block.
        embedded: the residual stream before the first block.
        scores: before masking.
        queries: after rotation.
        keys: after rotation; with fewer key-value heads than heads, of those.
        values: of the key-value heads.
        outputs: of each head, weights times values, gated; before the output matrix.
    """

    attention: Float[Array, "L H T T"]
    hidden: Float[Array, "L T d"]
    embedded: Float[Array, "T d"]
    scores: Float[Array, "L H T T"]
    queries: Float[Array, "L H T d_k"]
    keys: Float[Array, "L KV T d_k"]
    values: Float[Array, "L KV T d_v"]
    outputs: Float[Array, "L H T d_v"]


class Transformer(eqx.Module):
    """A pre-norm transformer: decoder (causal) or encoder.

    Attributes:
        embedding: of each token.
        positions: learned, one row a position, added or concatenated; None for none.
        blocks: applied in order.
        norm: of a position after the last block, or None.
        unembedding: from the last state to logits; None for the transposed embedding (a tied head).
        bias: of the logits, or None.
        causal: whether a row attends to itself and earlier positions only.
        concatenated: whether positions stand beside the token instead of being added.
    """

    embedding: Float[Array, "vocabulary d_token"]
    positions: Float[Array, "max_length d_position"] | None
    blocks: tuple[TransformerBlock, ...]
    norm: Norm | None
    unembedding: Float[Array, "d C"] | None
    bias: Float[Array, " C"] | None
    causal: bool = eqx.field(static=True)
    concatenated: bool = eqx.field(static=True)

    @overload
    def __call__(
        self, tokens: Int[Array, " T"], where: Bool[Array, "T T"] | None = None, capture: Literal[False] = False
    ) -> Float[Array, "T C"]: ...

    @overload
    def __call__(
        self, tokens: Int[Array, " T"], where: Bool[Array, "T T"] | None = None, *, capture: Literal[True]
    ) -> tuple[Float[Array, "T C"], Capture]: ...

    def __call__(self, tokens: Any, where: Bool[Array, "T T"] | None = None, capture: bool = False) -> Any:
        """Apply the model to one sequence.

        Args:
            tokens: numbers of tokens, each in [0, vocabulary). Under `jit` one outside makes NaN of its sequence.
            where: True at (i, j) where row i may attend to position j; on top of the causal mask. A row without any
                is not attended, and its attention adds nothing but biases.
            capture: whether to return what happened inside as well.

        Returns:
            Logits (T, C), or the logits and a `Capture`.

        Raises:
            FlowError: if there is no token, too many for the table of positions, one outside the vocabulary, or the
                mask is none.
        """
        tokens = self.read(tokens)
        x = embedded = self.embed(tokens)
        mask, layers = self._mask(len(tokens), where), []
        for block in self.blocks:
            x, inside = block(x, mask)
            layers.append((x, inside))
        logits = self.read_out(x)
        return (logits, _captured(embedded, layers)) if capture else logits

    def read(self, tokens: Any) -> Int[Array, " T"]:
        """Return the tokens of one sequence after checking them.

        Args:
            tokens: whole numbers.

        Returns:
            The same numbers.

        Raises:
            FlowError: if they are not one sequence of tokens that the model knows.
        """
        tokens = jnp.asarray(tokens)
        if tokens.ndim != 1 or not jnp.issubdtype(tokens.dtype, jnp.integer):
            hint = "; map over sequences with jax.vmap" if tokens.ndim > 1 else ""
            raise FlowError(f"tokens is {tokens.dtype} of shape {tokens.shape}: pass whole numbers (T,){hint}")
        self.check_inputs(tokens)
        return tokens

    def check_inputs(self, tokens: Int[Array, "*n T"]) -> None:
        """Refuse sequences that the model cannot read; traced tokens are not looked at, their number is.

        Args:
            tokens: of one sequence or several.

        Raises:
            FlowError: if there is no position, too many of them, or a token outside the vocabulary.
        """
        length, vocabulary = tokens.shape[-1], self.embedding.shape[-2]
        if not length:
            raise FlowError(f"tokens has shape {tokens.shape}: pass at least one token a sequence")
        if self.positions is not None and length > (most := self.positions.shape[-2]):
            raise FlowError(f"tokens has {length} positions and the table of positions {most}: pass {most} or fewer")
        if not is_traced(tokens) and tokens.size:
            numbers = np.asarray(tokens)  # on the host: under jit jnp would trace even what is known
            low, high = numbers.min(), numbers.max()
            if low < 0 or high >= vocabulary:
                raise FlowError(f"tokens holds {low if low < 0 else high}: pass numbers in [0, {vocabulary - 1}]")

    def embed(self, tokens: Int[Array, " T"]) -> Float[Array, "T d"]:
        """Return the residual stream before the first block; NaN at a token outside the vocabulary.

        Args:
            tokens: of one sequence.

        Returns:
            Embedded tokens with their positions.
        """
        vocabulary = self.embedding.shape[0]
        known = jnp.where(tokens < 0, vocabulary, tokens)  # a negative index would count from the end
        x = self.embedding.at[known].get(mode="fill", fill_value=jnp.nan)
        if self.positions is None:
            return x
        rows = self.positions[: len(tokens)]
        return jnp.concatenate([x, rows], axis=-1) if self.concatenated else x + rows

    def read_out(self, x: Float[Array, "T d"]) -> Float[Array, "T C"]:
        """Return logits.

        Args:
            x: the residual stream after the last block.

        Returns:
            Logits of each position.
        """
        unembedding = self.embedding.T if self.unembedding is None else self.unembedding
        logits = product(normalised(self.norm, x), unembedding)
        return logits if self.bias is None else logits + self.bias

    def _mask(self, length: int, where: Any) -> Bool[Array, "T T"] | None:
        given = None if where is None else as_mask(where, length)
        if not self.causal:
            return given
        earlier = jnp.tril(jnp.ones((length, length), bool))
        return earlier if given is None else earlier & given

    @classmethod
    def init(
        cls,
        key: PRNGKeyArray,
        vocabulary: int,
        *,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
        kv_heads: int | None = None,
        head_width: int | None = None,
        attention: AbstractKernel | AbstractActivation | str | None = "softmax",
        gated: bool = False,
        mlp: Literal["gelu", "swiglu"] | None = "gelu",
        mlp_width: int | None = None,
        norm: Literal["layer", "rms"] | None = "layer",
        positions: Literal["add", "concat", "rotary", "alibi"] | None = "add",
        max_length: int | None = None,
        biases: bool = True,
        tied: bool = False,
        causal: bool = True,
        classes: int | None = None,
        dtype: Any = None,
    ) -> "Transformer":
        """Draw embeddings N(0, 1) and everything else uniformly within one over the root of the fan-in.

        Args:
            key: random key.
            vocabulary: number of tokens.
            width: d, of the residual stream.
            layers: L, number of blocks.
            heads: H, of queries.
            kv_heads: of keys and values, a divisor of `heads`; None for as many.
            head_width: of a head; None is `width / heads`.
            attention: map from scores or from queries and keys to weights: one of `models.attention_maps()`, an
                activation or a kernel.
            gated: whether each output of a head is multiplied by a gate that the input decides.
            mlp: what acts on each position; None for attention only.
            mlp_width: of its hidden layer; None is four times `width`.
            norm: before each part and after the last block; None for none.
            positions: tables that are added, or concatenated in half the width; rotations of queries and keys; biases
                of scores; or None.
            max_length: length of the table of positions.
            biases: whether linear maps other than SwiGLU's have biases.
            tied: whether the embedding is the output head as well; drawn with variance 1 / d then.
            causal: whether a row attends to itself and earlier positions only (a decoder).
            classes: C, number of logits; None is `vocabulary`.
            dtype: of the parameters; None is JAX's default float type.

        Returns:
            The model.

        Raises:
            FlowError: if a size, a kind, a combination or the key cannot be used.
        """
        made = design(
            {
                "vocabulary": vocabulary,
                "width": width,
                "layers": layers,
                "heads": heads,
                "kv_heads": kv_heads,
                "head_width": head_width,
                "mlp": mlp,
                "mlp_width": mlp_width,
                "norm": norm,
                "positions": positions,
                "max_length": max_length,
                "gated": gated,
                "biases": biases,
                "tied": tied,
                "causal": causal,
                "classes": classes,
                "dtype": dtype,
            }
        )
        model = _drawn(cls, as_key(key), made, attention)
        return jax.tree.map(lambda x: x.astype(made.dtype) if eqx.is_inexact_array(x) else x, model)


def _drawn(cls: type[Transformer], key: PRNGKeyArray, design: Design, attention: Any) -> Transformer:
    """Return a model of a design, in JAX's default float type."""
    keys, width = jax.random.split(key, 4 + design.layers), design.width
    embedding = jax.random.normal(keys[0], (design.vocabulary, design.token_width))
    table = (design.max_length, design.position_width)
    return cls(
        embedding=embedding / math.sqrt(width) if design.tied else embedding,
        positions=jax.random.normal(keys[1], table) if design.positions in TABLES else None,
        blocks=tuple(_block(key, design, attention) for key in keys[4:]),
        norm=_norm(design),
        unembedding=None if design.tied else draw_within(keys[2], (width, design.classes), width),
        bias=draw_within(keys[3], (design.classes,), width) if design.biases and not design.tied else None,
        causal=design.causal,
        concatenated=design.positions == "concat",
    )


def _block(key: PRNGKeyArray, design: Design, attention: Any) -> TransformerBlock:
    attention_key, mlp_key = jax.random.split(key)
    parts = SelfAttention.init(
        attention_key,
        design.width,
        design.heads,
        design.kv_heads,
        design.head_width,
        attention=attention,
        gated=design.gated,
        biases=design.biases,
        rotary=Rotary(design.head_width) if design.positions == "rotary" else None,
        alibi=design.positions == "alibi",
    )
    if parts.alibi and not parts.kernel.takes_bias:
        raise FlowError(f"positions='alibi' biases scores, and attention {attention!r} has none: pass another of both")
    feed_forward = None
    if design.mlp == "gelu":
        feed_forward = Gelu.init(mlp_key, design.width, design.mlp_width, biases=design.biases)
    elif design.mlp == "swiglu":
        feed_forward = SwiGLU.init(mlp_key, design.width, design.mlp_width)
    return TransformerBlock(parts, _norm(design), feed_forward, _norm(design) if feed_forward is not None else None)


def _norm(design: Design) -> Norm | None:
    return None if design.norm is None else _NORMS[design.norm](design.width)


def _captured(embedded: Float[Array, "T d"], layers: list) -> Capture:
    """Stack what the layers captured."""
    inside = jax.tree.map(lambda *parts: jnp.stack(parts), *(seen for _, seen in layers))
    hidden = jnp.stack([x for x, _ in layers])
    return Capture(
        attention=inside.weights,
        hidden=hidden,
        embedded=embedded,
        scores=inside.scores,
        queries=inside.queries,
        keys=inside.keys,
        values=inside.values,
        outputs=inside.outputs,
    )
