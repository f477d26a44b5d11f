#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "models/pass.h"

// In a pass of a generation the tokens of several sequences lie one after the other, and a sequence
// gets the tokens that it gets alone. Two things would change how it is rounded: libraries multiply
// few rows by other code than many, so products are those of kernels/row_product.h, and libtorch's
// elementwise functions compute the values that are left over after whole vectors by another
// formula.
namespace strait::models {

// `compute` of [..., width] tensors: of one token at a time if the pass is one of a generation.
using TokenFunction = std::function<at::Tensor(const std::vector<at::Tensor>& values)>;
at::Tensor by_token(const Pass& pass, const std::vector<at::Tensor>& values,
                    const TokenFunction& compute);

// The same for functions that compute each value from those at its position alone. Tokens that are
// whole vectors are computed together, and threads share them.
at::Tensor by_value(const Pass& pass, const std::vector<at::Tensor>& values,
                    const TokenFunction& compute);

}  // namespace strait::models
