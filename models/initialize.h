#pragma once

#include <cstdint>

#include "models/model.h"

namespace strait::models {

// Random weights, drawn as Hugging Face's implementation of the family draws them. Every tensor is
// a function of (seed, its name, its shape): the same in every partition, and on both sides of a
// tied weight.
void initialize(Model& model, const ModelConfig& config, std::uint64_t seed);
// One of its parameters. Adapters are drawn as PEFT draws them, so that they begin as no change.
void initialize(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed);

}  // namespace strait::models
