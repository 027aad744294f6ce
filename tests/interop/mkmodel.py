#!/usr/bin/env python3
"""Makes a small Llama with random weights, which a real server can load.

    mkmodel.py DIR SEED

Two layers, 512 words, bfloat16, one safetensors file; a tokenizer that knows
the words "w0" to "w509".  Runs with the Python that vLLM is installed in.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS, WORDS = 256, 4, 2, 512, 2, 512
HEAD = HIDDEN // HEADS

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "vocab_size": WORDS,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def shapes():
    yield "model.embed_tokens.weight", (WORDS, HIDDEN)
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        yield p + "self_attn.q_proj.weight", (HIDDEN, HIDDEN)
        yield p + "self_attn.k_proj.weight", (KV_HEADS * HEAD, HIDDEN)
        yield p + "self_attn.v_proj.weight", (KV_HEADS * HEAD, HIDDEN)
        yield p + "self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        yield p + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield p + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield p + "mlp.down_proj.weight", (HIDDEN, INNER)
        yield p + "input_layernorm.weight", (HIDDEN,)
        yield p + "post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (WORDS, HIDDEN)


def weights(seed):
    g = torch.Generator().manual_seed(seed)
    for name, shape in shapes():
        if len(shape) == 1:
            t = 1 + 0.1 * torch.randn(shape, generator=g)
        else:
            t = torch.randn(shape, generator=g) / shape[-1] ** 0.5
        yield name, t.to(torch.bfloat16)


def tokenizer():
    words = {"<s>": 0, "</s>": 1}
    words.update({f"w{i}": i + 2 for i in range(WORDS - 2)})
    t = Tokenizer(models.WordLevel(words, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return t


def dump(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)


def main():
    where, seed = sys.argv[1], int(sys.argv[2])
    os.makedirs(where)
    save_file(dict(weights(seed)), os.path.join(where, "model.safetensors"),
              metadata={"format": "pt"})
    dump(os.path.join(where, "config.json"), CONFIG)
    dump(os.path.join(where, "tokenizer_config.json"),
         {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
          "eos_token": "</s>", "model_max_length": 256})
    tokenizer().save(os.path.join(where, "tokenizer.json"))


if __name__ == "__main__":
    main()
