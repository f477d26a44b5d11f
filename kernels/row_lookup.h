#pragma once

#include <ATen/core/Tensor.h>

namespace strait::kernels {

// table [rows, width] and int64 indices [...] to [..., width], differentiable. Its backward adds
// straight into table.grad (made if there is none), and only into the rows that were looked up: for
// the token table of a language model a gradient of its own would be as large as the table, for
// every micro-batch. `table` must be a leaf; indices must be valid.
at::Tensor look_up_rows(const at::Tensor& table, const at::Tensor& indices);

}  // namespace strait::kernels
