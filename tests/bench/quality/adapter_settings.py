"""What the frozen base of adapters may be kept in: name -> recipe keys."""

RANK = 8
TIMES_RATE = 5  # adapters want larger steps than the whole model

RAW = "LoRA, float32 base"

# What the others are compared with comes first.
SETTINGS = {RAW: "none", "LoRA, int8 base": "int8", "LoRA, int4 base": "int4", "LoRA, nf4 base": "nf4"}


def recipe(name, learning_rate):
    """Recipe keys of a row, in full. One stage: more would give the same bits."""
    return {
        "pipeline.stages": 1, "train.learning_rate": learning_rate * TIMES_RATE, "model.lora.rank": RANK,
        "model.lora.alpha": 2 * RANK, "model.quantization": SETTINGS[name],
    }
