#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strait::kernels {

// table [rows, width] and int64 indices [...] to [..., width], differentiable. Its backward adds
// straight into table.grad (made if there is none), and only into the rows that were looked up: for
// the token table of a language model a gradient of its own would be as large as the table, for
// every micro-batch. The row `padding` gets no gradient; -1: there is none. `table` must be a leaf;
// indices must be valid.
at::Tensor look_up_rows(const at::Tensor& table, const at::Tensor& indices,
                        std::int64_t padding = -1);

}  // namespace strait::kernels
