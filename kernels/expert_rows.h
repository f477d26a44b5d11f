#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace strait::kernels {

// Which rows each expert of a sparse layer computes. Every token has `ways` choices, and every
// choice is a row; rows are sorted by expert, and inside an expert by token. No row is dropped, so
// their number is tokens · ways, whatever the router chooses.
struct ExpertRows {
  at::Tensor tokens;                 // int64 [rows]: the token of each row
  at::Tensor choices;                // int64 [rows]: token · ways + number of the choice
  at::Tensor places;                 // int64 [tokens, ways]: the row of each choice
  std::vector<std::int64_t> counts;  // rows of each expert
};

// `chosen`: int64 [tokens, ways], experts below `experts`. Sorted on the host: for a device this
// waits for the router.
ExpertRows sort_by_expert(const at::Tensor& chosen, std::int64_t experts);

// The token's values for every row, differentiable: [tokens, width] to [rows, width].
at::Tensor gather_rows(const at::Tensor& tokens, const ExpertRows& rows);

// Every token's sum of its rows, without gradients: [rows, width] to [tokens, width]. In the order
// of `places` and in float32.
at::Tensor sum_rows(const at::Tensor& values, const at::Tensor& places);

// Every token's sum of its rows, each times its weight, differentiable: [rows, width] and [tokens,
// ways] to [tokens, width]. Sums are in float32 and in the order of the choices, so that they do
// not depend on threads.
at::Tensor combine_rows(const at::Tensor& values, const at::Tensor& weights,
                        const ExpertRows& rows);

// `probabilities` [tokens, experts] as they are; the backward adds slope [experts] to the gradient
// of every token. It is the gradient of a term of the loss that is linear in the probabilities.
at::Tensor with_slope(const at::Tensor& probabilities, const at::Tensor& slope);

}  // namespace strait::kernels
