#pragma once

#include "models/families.h"

namespace strait::models {

// GPT-2: learned positions, norms before attention and MLP, Conv1D matrices, tied projection.
Family gpt2_family();

}  // namespace strait::models
