"""PyTorch's encoder layers and the Llama of `transformers` compute the same logits and attention, at random weights."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from torch import nn

import gradflow as gf

WIDTH, HEADS, HIDDEN, LENGTH, VOCABULARY = 24, 4, 40, 9, 17
TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, LENGTH)


def array(parameter):
    return jnp.asarray(parameter.detach().numpy())


def projection(weight, bias, heads):
    """Return PyTorch's (out, in) weight as a projection into heads."""
    bias = None if bias is None else array(bias).reshape(heads, -1)
    return gf.models.transformer.Projection(array(weight).T.reshape(WIDTH, heads, -1), bias)


def from_torch(model, layers, embedding, norm, head):
    """Return our model with the weights of PyTorch's."""

    def with_block(block, layer):
        attention, w = layer.self_attn, layer.self_attn.in_proj_weight.chunk(3)
        b = attention.in_proj_bias.chunk(3)
        parts = [projection(*pair, HEADS) for pair in zip(w, b, strict=True)]
        w_o = array(attention.out_proj.weight).T.reshape(HEADS, -1, WIDTH)
        block = eqx.tree_at(
            lambda m: [m.attention.query, m.attention.key, m.attention.value, m.attention.w_o, m.attention.b_o],
            block,
            [*parts, w_o, array(attention.out_proj.bias)],
        )
        mlp = [array(layer.linear1.weight).T, array(layer.linear1.bias)]
        mlp += [array(layer.linear2.weight).T, array(layer.linear2.bias)]
        block = eqx.tree_at(
            lambda m: [m.feed_forward.w_in, m.feed_forward.b_in, m.feed_forward.w_out, m.feed_forward.b_out], block, mlp
        )
        norms = [array(x) for n in (layer.norm1, layer.norm2) for x in (n.weight, n.bias)]
        return eqx.tree_at(
            lambda m: [x for n in (m.attention_norm, m.feed_forward_norm) for x in (n.weight, n.bias)], block, norms
        )

    blocks = tuple(map(with_block, model.blocks, layers))
    model = eqx.tree_at(lambda m: m.blocks, model, blocks)
    ends = [array(embedding.weight), array(norm.weight), array(norm.bias), array(head.weight).T, array(head.bias)]
    return eqx.tree_at(lambda m: [m.embedding, m.norm.weight, m.norm.bias, m.unembedding, m.bias], model, ends)


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
def test_layers_of_pytorch(causal: bool):
    torch.manual_seed(0)
    make = {"dim_feedforward": HIDDEN, "dropout": 0.0, "activation": "gelu", "norm_first": True, "batch_first": True}
    layers = [nn.TransformerEncoderLayer(WIDTH, HEADS, **make).double() for _ in range(2)]
    embedding, norm = nn.Embedding(VOCABULARY, WIDTH).double(), nn.LayerNorm(WIDTH).double()
    head = nn.Linear(WIDTH, VOCABULARY).double()
    for layer in layers:
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.4)
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=torch.float64) if causal else None
    x = embedding(torch.tensor(TOKENS))[None]
    for layer in layers:
        x = layer(x, src_mask=mask, is_causal=causal)
    expected = head(norm(x))[0].detach().numpy()

    ours = gf.models.Transformer.init(
        jax.random.key(0), VOCABULARY, width=WIDTH, heads=HEADS, mlp_width=HIDDEN, positions=None, causal=causal
    )
    ours = from_torch(ours, layers, embedding, norm, head)
    np.testing.assert_allclose(ours(TOKENS), expected, rtol=1e-10, atol=1e-10)


def test_llama_of_transformers():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    theirs = transformers.LlamaForCausalLM(config).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    with torch.no_grad():
        out = theirs(torch.tensor(TOKENS)[None], output_attentions=True, output_hidden_states=True)

    ours = gf.models.Transformer.init(
        jax.random.key(0),
        VOCABULARY,
        width=WIDTH,
        heads=HEADS,
        kv_heads=2,
        mlp="swiglu",
        mlp_width=HIDDEN,
        norm="rms",
        positions="rotary",
        biases=False,
        tied=True,
    )
    blocks = []
    for block, layer in zip(ours.blocks, theirs.model.layers, strict=True):
        a, m = layer.self_attn, layer.mlp
        new = [projection(a.q_proj.weight, None, HEADS), projection(a.k_proj.weight, None, 2)]
        new += [projection(a.v_proj.weight, None, 2), array(a.o_proj.weight).T.reshape(HEADS, -1, WIDTH)]
        new += [array(w.weight).T for w in (m.gate_proj, m.up_proj, m.down_proj)]
        new += [array(n.weight) for n in (layer.input_layernorm, layer.post_attention_layernorm)]
        blocks.append(eqx.tree_at(llama_parts, block, new))
    ends = [tuple(blocks), array(theirs.model.embed_tokens.weight), array(theirs.model.norm.weight)]
    ours = eqx.tree_at(lambda m: [m.blocks, m.embedding, m.norm.weight], ours, ends)
    logits, capture = ours(TOKENS, capture=True)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=2e-6)  # its angles and rows are float32
    close(logits, out.logits[0])
    close(capture.attention, np.concatenate(out.attentions))
    close(capture.embedded, out.hidden_states[0][0])
    close(capture.hidden[0], out.hidden_states[1][0])


def llama_parts(block):
    a, m = block.attention, block.feed_forward
    parts = [a.query, a.key, a.value, a.w_o, m.w_gate, m.w_in, m.w_out]
    return [*parts, block.attention_norm.weight, block.feed_forward_norm.weight]
