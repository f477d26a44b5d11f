"""How an optimizer's state may be kept: name -> recipe keys. All weights train, on one stage."""

# What the others are compared with comes first.
RAW = "AdamW, float32 moments"
SETTINGS = {
    RAW: {}, "AdamW, bfloat16 moments": {"train.moments": "bfloat16"}, "AdamW, int8 moments": {"train.moments": "int8"},
    "AdamW, beta2 0.999, float32 moments": {"train.betas": [0.9, 0.999]},
    "AdamW, beta2 0.999, bfloat16 moments": {"train.betas": [0.9, 0.999], "train.moments": "bfloat16"},
    "AdamW, beta2 0.999, int8 moments": {"train.betas": [0.9, 0.999], "train.moments": "int8"},
    "Muon": {"train.optimizer": "muon"}, "Muon, int8 moments": {"train.optimizer": "muon", "train.moments": "int8"},
}


def recipe(name, learning_rate):
    """Recipe keys of a row, in full."""
    return {"pipeline.stages": 1, "train.learning_rate": learning_rate, **SETTINGS[name]}
