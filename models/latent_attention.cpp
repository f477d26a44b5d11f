#include "models/latent_attention.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/decoder_config.h"

namespace strait::models {
namespace {

// Of the norms between two matrices, whatever that of the others is.
constexpr double kLatentEpsilon = 1e-6;

at::Tensor widened(const at::Tensor& heads, std::int64_t width) {
  return heads.size(3) == width ? heads : at::constant_pad_nd(heads, {0, width - heads.size(3)});
}

}  // namespace

LatentAttention::LatentAttention(ParameterMaker& maker, int index, const DecoderConfig& config)
    : latent_(config.latent),
      heads_(config.heads),
      growth_(config.query_growth),
      rotary_(config.rotary) {
  options_.scale = config.attention_scale;
  options_.dropout = config.attention_dropout;
  options_.layer = index;
  const std::string prefix = config.block_prefix(index);
  const DecoderNames& names = config.names;
  const NormOptions norm{NormKind::rms, kLatentEpsilon};
  const auto matrix = [&](const std::string& name, std::int64_t input, std::int64_t output,
                          bool bias) {
    return Linear(maker, prefix + name, {input, output, config.layout, bias});
  };
  const bool bias = config.query_key_value_bias;
  const std::int64_t queries = heads_ * latent_.key_width();
  if (latent_.query_rank == 0) {
    query_ = matrix(names.query, config.hidden, queries, false);
  } else {
    query_down_ = matrix("self_attn.q_a_proj", config.hidden, latent_.query_rank, bias);
    query_norm_.emplace(maker, prefix + names.query_norm, latent_.query_rank, norm);
    query_ = matrix("self_attn.q_b_proj", latent_.query_rank, queries, false);
  }
  down_ = matrix("self_attn.kv_a_proj_with_mqa", config.hidden,
                 latent_.rank + latent_.rotated_width, bias);
  norm_.emplace(maker, prefix + names.key_norm, latent_.rank, norm);
  up_ = matrix("self_attn.kv_b_proj", latent_.rank,
               heads_ * (latent_.plain_width + latent_.value_width), false);
  output_ = matrix(names.attention_output, heads_ * latent_.value_width, config.hidden,
                   config.attention_output_bias);
}

kernels::AttentionHeads LatentAttention::project(const at::Tensor& input, const Pass& pass) const {
  const std::int64_t plain = latent_.plain_width;
  const auto& [cosine, sine] = pass.rotary->of(*rotary_, pass.positions, input.options());
  const auto joined = [&, &cosine = cosine, &sine = sine](const at::Tensor& first,
                                                          const at::Tensor& to_rotate) {
    const at::Tensor rotated = kernels::rotate_heads(to_rotate, cosine, sine, rotary_->pairs);
    return at::cat({first, rotated.expand({-1, -1, heads_, -1})}, 3);
  };
  const at::Tensor source =
      query_down_ ? query_norm_->forward(query_down_->forward(input, pass)) : input;
  const std::vector<at::Tensor> query = query_->forward(source, pass)
                                            .unflatten(2, {heads_, latent_.key_width()})
                                            .split_with_sizes({plain, latent_.rotated_width}, 3);
  const std::vector<at::Tensor> latents =
      down_->forward(input, pass).split_with_sizes({latent_.rank, latent_.rotated_width}, 2);
  const std::vector<at::Tensor> heads = up_->forward(norm_->forward(latents[0]), pass)
                                            .unflatten(2, {heads_, plain + latent_.value_width})
                                            .split_with_sizes({plain, latent_.value_width}, 3);
  return {joined(query[0], query[1]), joined(heads[0], latents[1].unsqueeze(2)), heads[1]};
}

at::Tensor LatentAttention::forward(const at::Tensor& input, const Pass& pass) const {
  kernels::AttentionHeads heads = project(input, pass);
  heads.query = grown(heads.query, growth_, pass);
  // Attention has heads of one width. Zeros change neither scores nor sums.
  const std::int64_t width = std::max(latent_.key_width(), latent_.value_width);
  for (at::Tensor* values : {&heads.query, &heads.key, &heads.value}) {
    *values = widened(*values, width);
  }
  at::Tensor attended = attend(heads, options_, pass);
  if (width > latent_.value_width) {
    attended = attended.unflatten(2, {heads_, width}).narrow(3, 0, latent_.value_width).flatten(2);
  }
  return output_->forward(attended, pass);
}

}  // namespace strait::models
