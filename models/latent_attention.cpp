#include "models/latent_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/quantized_heads.h"
#include "kernels/row_product.h"
#include "models/decoder_config.h"
#include "models/key_value_cache.h"

namespace strait::models {
namespace {

// Of the norms between two matrices, whatever that of the others is.
constexpr double kLatentEpsilon = 1e-6;

at::Tensor widened(const at::Tensor& heads, std::int64_t width) {
  return heads.size(3) == width ? heads : at::constant_pad_nd(heads, {0, width - heads.size(3)});
}

// A head's rows of the matrix of keys and values, of its keys or of its values.
at::Tensor rows_of_heads(const at::Tensor& matrix, std::int64_t heads, std::int64_t first,
                         std::int64_t count) {
  return matrix.unflatten(0, {heads, -1}).narrow(1, first, count);
}

// What the cache keeps of new latents and rotated parts of keys.
std::vector<at::Tensor> kept_of(const std::vector<at::Tensor>& latents,
                                const KeyValueCache& cache) {
  if (cache.format() == CacheFormat::float32) return {at::cat(latents, 3)};
  const kernels::QuantizedHeads latent = kernels::quantize_heads(latents[0]);
  const kernels::QuantizedHeads rotated = kernels::quantize_heads(latents[1]);
  return {latent.values, latent.scales, rotated.values, rotated.scales};
}

// Both in one tensor, in float32 for as long as a layer of one sequence computes.
at::Tensor all_latents(const std::vector<at::Tensor>& kept) {
  if (kept.size() == 1) return kept[0];
  return at::cat({kernels::dequantize_heads({kept[0], kept[1]}),
                  kernels::dequantize_heads({kept[2], kept[3]})},
                 3);
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

at::Tensor LatentAttention::queries(const at::Tensor& input, const Pass& pass) const {
  const auto& [cosine, sine] = pass.rotary->of(*rotary_, pass.positions, input.options());
  const at::Tensor source =
      query_down_ ? query_norm_->forward(query_down_->forward(input, pass)) : input;
  const std::vector<at::Tensor> parts =
      query_->forward(source, pass)
          .unflatten(2, {heads_, latent_.key_width()})
          .split_with_sizes({latent_.plain_width, latent_.rotated_width}, 3);
  const at::Tensor rotated = kernels::rotate_heads(parts[1], cosine, sine, rotary_->pairs);
  return grown(at::cat({parts[0], rotated}, 3), growth_, pass);
}

std::vector<at::Tensor> LatentAttention::latents(const at::Tensor& input, const Pass& pass) const {
  const auto& [cosine, sine] = pass.rotary->of(*rotary_, pass.positions, input.options());
  const std::vector<at::Tensor> parts =
      down_->forward(input, pass).split_with_sizes({latent_.rank, latent_.rotated_width}, 2);
  const at::Tensor rotated =
      kernels::rotate_heads(parts[1].unsqueeze(2), cosine, sine, rotary_->pairs);
  return {norm_->forward(parts[0]).unsqueeze(2), rotated};
}

kernels::AttentionHeads LatentAttention::heads_of(const at::Tensor& query,
                                                  const std::vector<at::Tensor>& latents,
                                                  const Pass& pass) const {
  const std::vector<at::Tensor> heads =
      up_->forward(latents[0].squeeze(2), pass)
          .unflatten(2, {heads_, latent_.plain_width + latent_.value_width})
          .split_with_sizes({latent_.plain_width, latent_.value_width}, 3);
  const at::Tensor key = at::cat({heads[0], latents[1].expand({-1, -1, heads_, -1})}, 3);
  // Attention has heads of one width. Zeros change neither scores nor sums.
  const std::int64_t width = std::max(latent_.key_width(), latent_.value_width);
  return {widened(query, width), widened(key, width), widened(heads[1], width)};
}

at::Tensor LatentAttention::without_padding(const at::Tensor& attended) const {
  return attended.narrow(3, 0, latent_.value_width).flatten(2);
}

at::Tensor LatentAttention::forward(const at::Tensor& input, const Pass& pass) const {
  const at::Tensor query = queries(input, pass);
  const std::vector<at::Tensor> kept = latents(input, pass);
  if (pass.cache != nullptr) {
    return output_->forward(attend_to_cache(query, kept, pass), pass);
  }
  const at::Tensor attended = attend(heads_of(query, kept, pass), options_, pass);
  return output_->forward(without_padding(attended.unflatten(2, {heads_, -1})), pass);
}

// ---- generation ---------------------------------------------------------------------------------

at::Tensor LatentAttention::attend_to_cache(const at::Tensor& query,
                                            const std::vector<at::Tensor>& latents,
                                            const Pass& pass) const {
  const KeyValueCache& cache = *pass.cache;
  const std::vector<at::Tensor> added = kept_of(latents, cache);
  const auto attend_token = [&](const at::Tensor& one, const at::Tensor& all) {
    return kernels::latent_attention(one, all.squeeze(0).squeeze(1), latent_.rank, options_.scale);
  };
  if (cache.extends_by_tokens(query)) {
    // A token alone multiplies its query by the matrix of keys, and attends to latents as they are.
    // Several tokens expand the latents instead, which takes fewer operations then.
    const at::Tensor own = to_latents(query.flatten(0, 1), pass);
    std::vector<at::Tensor> tokens;
    tokens.reserve(added.size());
    for (const at::Tensor& one : added) tokens.push_back(one.flatten(0, 1).contiguous());
    const at::Tensor sums = at::empty({own.size(0), heads_, latent_.rank}, own.options());
    kernels::parallel_for(own.size(0), 1, [&](std::int64_t first, std::int64_t last) {
      const at::NoGradGuard no_grad;  // threads have their own
      for (std::int64_t i = first; i < last; ++i) {
        SequenceCache& sequence = *cache.extensions()[static_cast<std::size_t>(i)].sequence;
        std::vector<at::Tensor> token;
        token.reserve(tokens.size());
        for (const at::Tensor& one : tokens) token.push_back(one.narrow(0, i, 1).unsqueeze(0));
        sums[i].copy_(attend_token(own[i], all_latents(sequence.append(options_.layer, token))));
      }
    });
    return to_values(sums, pass).flatten(1).unflatten(0, {query.size(0), query.size(1)});
  }
  std::vector<at::Tensor> values{query};
  values.insert(values.end(), added.begin(), added.end());
  return cache.by_sequence(
      values, [&](SequenceCache& sequence, const std::vector<at::Tensor>& own) {
        const at::Tensor all =
            all_latents(sequence.append(options_.layer, {own.begin() + 1, own.end()}));
        if (own[0].size(1) == 1) {
          const at::Tensor sums = attend_token(to_latents(own[0].squeeze(0), pass)[0], all);
          return to_values(sums.unsqueeze(0), pass).flatten(1).unsqueeze(0);
        }
        kernels::AttentionRules rules;
        rules.scale = options_.scale;
        const std::vector<at::Tensor> parts =
            all.split_with_sizes({latent_.rank, latent_.rotated_width}, 3);
        return without_padding(kernels::attention_to_cache(heads_of(own[0], parts, pass), rules));
      });
}

at::Tensor LatentAttention::to_latents(const at::Tensor& query, const Pass& pass) const {
  const std::int64_t plain = latent_.plain_width;
  at::Tensor own = query.narrow(2, 0, plain);
  // DoRA scales rows of the matrix, which are columns of its transpose here.
  if (const at::Tensor factors = up_->factors(pass); factors.defined()) {
    own = own * factors.view({heads_, -1}).narrow(1, 0, plain).to(own.scalar_type());
  }
  const at::Tensor matrix = up_->stored(query.scalar_type());
  at::Tensor product =
      kernels::row_products(own, rows_of_heads(matrix, heads_, 0, plain), /*input_first=*/true);
  if (const Adapter* adapter = up_->adapter(pass)) {
    const at::Tensor inner = kernels::row_products(
        own, rows_of_heads(adapter->up, heads_, 0, plain), /*input_first=*/true);
    product = product + kernels::row_product(inner.flatten(0, 1).mul_(adapter->shape.scale),
                                             adapter->down, {}, /*input_first=*/true)
                            .view(product.sizes());
  }
  return at::cat({product, query.narrow(2, plain, latent_.rotated_width)}, 2);
}

at::Tensor LatentAttention::to_values(const at::Tensor& sums, const Pass& pass) const {
  const std::int64_t plain = latent_.plain_width;
  const std::int64_t width = latent_.value_width;
  const at::Tensor matrix = up_->stored(sums.scalar_type());
  at::Tensor product = kernels::row_products(sums, rows_of_heads(matrix, heads_, plain, width),
                                             /*input_first=*/false);
  const Adapter* const adapter = up_->adapter(pass);
  if (adapter == nullptr) return product;
  const at::Tensor inner = kernels::row_product(sums.flatten(0, 1), adapter->down, {}, false)
                               .mul_(adapter->shape.scale)
                               .view({sums.size(0), heads_, -1});
  at::Tensor values =
      product + kernels::row_products(inner, rows_of_heads(adapter->up, heads_, plain, width),
                                      /*input_first=*/false);
  const at::Tensor factors = up_->factors(pass);
  if (!factors.defined()) return values;
  return values * factors.view({heads_, -1}).narrow(1, plain, width).to(values.scalar_type());
}

}  // namespace strait::models
