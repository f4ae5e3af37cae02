"""Write a random Llama into a folder: ``model.py FOLDER BLOCKS HIDDEN``."""

import sys

import shims


def main(folder, blocks, hidden):
    """Eight heads, of which two share a key and a value; the weights of a fixed seed."""
    shims.flatten()
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=blocks,
        num_attention_heads=8,
        num_key_value_heads=4,
        # tokens that differ from step to step, not the same one for ever
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
