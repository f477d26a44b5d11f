#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/attention.h"
#include "models/linear.h"
#include "models/norm.h"

namespace strait::models {

struct DecoderConfig;

// Multi-head latent attention, as a family's config.json describes it.
struct LatentOptions {
  std::int64_t query_rank = 0;     // of queries; 0: one matrix gives them
  std::int64_t rank = 0;           // of keys and values; 0: attention has no latents
  std::int64_t plain_width = 0;    // of a head's queries and keys, the part that is not rotated
  std::int64_t rotated_width = 0;  // the part after it; all heads share that of the key
  std::int64_t value_width = 0;

  std::int64_t key_width() const { return plain_width + rotated_width; }
};

// Attention whose queries, keys and values are products of two matrices each, with a norm between
// them. The cache holds what the keys and values of all heads are made from: a latent and the
// rotated part of keys for each token. A single new token attends to these, its query multiplied by
// the matrix of keys and its result by that of values; several make keys and values of them again.
class LatentAttention {
 public:
  LatentAttention(ParameterMaker& maker, int index, const DecoderConfig& config);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const;

 private:
  // [rows, length, heads, key width]
  at::Tensor queries(const at::Tensor& input, const Pass& pass) const;
  // Normed latents [rows, length, 1, rank], and the rotated part of keys.
  std::vector<at::Tensor> latents(const at::Tensor& input, const Pass& pass) const;
  // With the keys and values of these latents.
  kernels::AttentionHeads heads_of(const at::Tensor& query, const std::vector<at::Tensor>& latents,
                                   const Pass& pass) const;
  at::Tensor without_padding(const at::Tensor& attended) const;

  // Generation. Queries [tokens, heads, key width] as they attend to latents, [tokens, heads, rank
  // + rotated width], and sums of latents [tokens, heads, rank] as sums of values.
  at::Tensor attend_to_cache(const at::Tensor& query, const std::vector<at::Tensor>& latents,
                             const Pass& pass) const;
  at::Tensor to_latents(const at::Tensor& query, const Pass& pass) const;
  at::Tensor to_values(const at::Tensor& sums, const Pass& pass) const;

  LatentOptions latent_;
  std::int64_t heads_;
  AttentionOptions options_;
  QueryGrowth growth_;
  std::shared_ptr<const Rotary> rotary_;
  std::optional<Linear> query_down_;  // absent: `query_` has the block's input
  std::optional<Norm> query_norm_;
  std::optional<Linear> query_;
  std::optional<Linear> down_;  // to the latents of keys and values, and the rotated part of keys
  std::optional<Norm> norm_;
  std::optional<Linear> up_;  // to a head's keys and values, then the next head's
  std::optional<Linear> output_;
};

}  // namespace strait::models
