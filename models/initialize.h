#pragma once

#include "models/model.h"

namespace strait::models {

// Draws random weights as Hugging Face's implementation of the family does. Every tensor is a
// function of (seed, its name, its shape), so it is the same in every partition and on both sides
// of a tied weight.
void initialize(Model& model, const ModelConfig& config, std::uint64_t seed);
// Draws one parameter. Adapters are drawn as PEFT draws them: at the start they change nothing. So
// the matrix of DoRA's norms must have its values.
void initialize(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed);

}  // namespace strait::models
