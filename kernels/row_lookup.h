#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strait::kernels {

// table [rows, width] and int64 indices [...] to [..., width], differentiable. The backward adds
// directly to table.grad (created if absent), and only to the rows that were looked up. A separate
// gradient of a language model's token table would be as large as the table, for every micro-batch.
// The row `padding` gets no gradient; -1: none. `table` must be a leaf; indices must be valid.
at::Tensor look_up_rows(const at::Tensor& table, const at::Tensor& indices,
                        std::int64_t padding = -1);

}  // namespace strait::kernels
