#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "framework/tensors/safetensors_writer.h"
#include "stages/adamw.h"

namespace strait::stages {

// The tensor of this global name, from wherever it is kept; throws where there is none.
using ReadTensor = std::function<at::Tensor(const std::string& name)>;

// Weights from elsewhere (a Hugging Face directory, another run): moments and counters stay as they
// are.
void load_weights(AdamW& optimizer, const ReadTensor& read);

// Everything that a step changes, as a checkpoint has it. Names are global, so the tensors may come
// from a run with another partition.
void restore(AdamW& optimizer, const ReadTensor& read);

// What a checkpoint of this stage holds: masters under their own names, and what the optimizer
// keeps of each under names made of it. Copies of a tied weight are left to its owner. The tensors
// share memory with the optimizer: write them before the next update.
std::vector<tensors::NamedTensor> saved_tensors(const AdamW& optimizer);

}  // namespace strait::stages
