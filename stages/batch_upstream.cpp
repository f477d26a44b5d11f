#include "stages/batch_upstream.h"

#include <ATen/ATen.h>

namespace strait::stages {

Flow BatchUpstream::take(const Phase& phase, MicroBatch micro_batch) {
  codec::Rows rows = source_.rows(phase, micro_batch);
  const tensors::TokenFile& file = source_.file(phase);
  at::Tensor tokens = at::zeros({rows.size(), rows.padded_length}, at::kLong);
  auto* to = tokens.mutable_data_ptr<std::int64_t>();
  for (const codec::Row& row : rows.rows) {
    const std::span<const std::int32_t> from = file.tokens(row.sample);
    std::copy_n(from.begin(), row.length(), to);
    to += rows.padded_length;
  }
  return Flow{std::move(tokens), std::move(rows)};
}

void BatchUpstream::give_gradient(const Phase&, MicroBatch, at::Tensor gradient) {
  TORCH_INTERNAL_ASSERT(!gradient.defined(), "tokens have no gradient");
}

}  // namespace strait::stages
