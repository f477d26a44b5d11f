#include "models/decoder_layers.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "kernels/kernel_tensors.h"
#include "kernels/random.h"
#include "models/batch_invariance.h"

namespace strait::models {
namespace {

// Numbers of the dropouts of one layer. They are part of the keys of masks, so they must not
// change. The dropout of attention's probabilities has 0 (attention.cpp).
constexpr int kEmbeddingSite = 0;
constexpr int kAttentionSite = 1;
constexpr int kMlpSite = 2;
constexpr int kNoiseSite = 3;

at::Tensor drop(const at::Tensor& values, double probability, const Pass& pass, int layer,
                int site) {
  return pass.training ? kernels::dropout(values, probability, pass.dropout_key(layer, site))
                       : values;
}

// NEFTune (Jain et al. 2023): uniform in +-alpha / sqrt(tokens of a row * width).
at::Tensor with_noise(const at::Tensor& rows, const Pass& pass) {
  if (pass.noise == 0) return rows;
  const kernels::DropoutKey key = pass.dropout_key(0, kNoiseSite);
  at::Generator generator = kernels::keyed_generator(
      kernels::mix_key({key.seed, key.step, key.micro_batch, key.layer, key.site}), rows.device());
  const double most = pass.noise / std::sqrt(static_cast<double>(rows.size(1) * rows.size(2)));
  at::Tensor noise = at::empty(rows.sizes(), rows.options().requires_grad(false));
  return rows + noise.uniform_(-most, most, generator);
}

at::Tensor scaled(const at::Tensor& values, double scale) {
  return scale == 1 ? values : values * scale;
}

std::optional<Norm> optional_norm(ParameterMaker& maker, const std::string& prefix,
                                  const std::string& name, std::int64_t width,
                                  NormOptions options) {
  if (name.empty()) return std::nullopt;
  return Norm(maker, prefix + name, width, options);
}

std::optional<Linear> optional_linear(ParameterMaker& maker, const std::string& name,
                                      const LinearShape& shape) {
  if (name.empty()) return std::nullopt;
  return Linear(maker, name, shape);
}

Mlp make_mlp(ParameterMaker& maker, const std::string& prefix, const DecoderConfig& config) {
  const DecoderNames& names = config.names;
  const auto into = [&](const std::string& name, std::int64_t width) {
    return Linear(maker, prefix + name, {config.hidden, width, config.layout, config.mlp_bias});
  };
  // Made one after the other, because parameters are listed in the order in which they are made.
  std::optional<Linear> gate;
  if (config.gated && names.gate_up.empty()) gate = into(names.gate, config.inner);
  Linear up =
      names.gate_up.empty() ? into(names.up, config.inner) : into(names.gate_up, 2 * config.inner);
  Linear down(maker, prefix + names.down,
              {config.inner, config.hidden, config.layout, config.mlp_bias});
  return {std::move(gate),   std::move(up),   config.gated,
          config.activation, std::move(down), config.experts.clamped};
}

// An expert is an MLP of another width, under names of its own.
Mlp make_expert(ParameterMaker& maker, const std::string& prefix, const DecoderConfig& config,
                std::int64_t expert) {
  DecoderConfig own = config;
  const std::string name = config.names.experts + std::to_string(expert) + ".";
  own.inner = config.experts.inner;
  own.names.gate = name + config.names.expert_gate;
  own.names.up = name + config.names.expert_up;
  own.names.down = name + config.names.expert_down;
  if (config.experts.joined) {
    if (config.experts.input_first) own.layout = MatrixLayout::input_output;
    own.names.gate_up = name + config.names.expert_gate_up;
  }
  return make_mlp(maker, prefix, own);
}

// An MLP that every token goes to, and its gate if there is one.
std::optional<SharedExpert> make_shared_expert(ParameterMaker& maker, const std::string& prefix,
                                               const DecoderConfig& config) {
  if (config.experts.shared_inner == 0) return std::nullopt;
  DecoderConfig own = config;
  own.inner = config.experts.shared_inner;
  own.names.gate = config.names.shared_expert + config.names.expert_gate;
  own.names.up = config.names.shared_expert + config.names.expert_up;
  own.names.down = config.names.shared_expert + config.names.expert_down;
  Mlp mlp = make_mlp(maker, prefix, own);
  const std::string& gate = config.names.shared_expert_gate;
  return SharedExpert{std::move(mlp),
                      optional_linear(maker, gate.empty() ? gate : prefix + gate,
                                      {config.hidden, 1, config.layout, /*bias=*/false})};
}

std::variant<SelfAttention, LatentAttention, DeltaNet> make_attention(ParameterMaker& maker,
                                                                      int index,
                                                                      const DecoderConfig& config) {
  if (config.block_recurrent(index - 1)) return DeltaNet(maker, index, config);
  if (config.latent.rank > 0) return LatentAttention(maker, index, config);
  return SelfAttention(maker, index, config);
}

std::variant<Mlp, ExpertMlp> make_mlp_or_experts(ParameterMaker& maker, int index,
                                                 const DecoderConfig& config) {
  const std::string prefix = config.block_prefix(index);
  if (!config.block_sparse(index - 1)) return make_mlp(maker, prefix, config);
  ExpertMlp experts(
      maker, index, prefix + config.names.router, config.hidden, config.experts,
      [&](std::int64_t expert) { return make_expert(maker, prefix, config, expert); });
  experts.share(make_shared_expert(maker, prefix, config));
  return experts;
}

}  // namespace

// ---- embedding ----------------------------------------------------------------------------------

DecoderEmbedding::DecoderEmbedding(const DecoderConfig& config, ParameterMaker maker)
    : Layer(0),
      scale_(config.embedding_scale),
      dropout_(config.embedding_dropout),
      position_offset_(config.position_offset),
      tokens_(maker, config.names.tokens, config.vocabulary, config.token_width(), "token",
              config.padding_token),
      project_in_(optional_linear(
          maker, config.names.project_in,
          {config.token_width(), config.hidden, MatrixLayout::output_input, /*bias=*/false})) {
  if (!config.names.positions.empty()) {
    positions_.emplace(maker, config.names.positions, config.positions + config.position_offset,
                       config.hidden, "position");
  }
  adopt(maker);
}

at::Tensor DecoderEmbedding::forward(const at::Tensor& tokens, const Pass& pass) {
  at::Tensor sum = with_noise(tokens_.forward(tokens), pass);
  if (scale_ != 1) sum = sum.mul(at::scalar_tensor(scale_, sum.options().requires_grad(false)));
  if (project_in_) sum = project_in_->forward(sum, pass);
  if (positions_) sum = sum + positions_->forward(pass.positions + position_offset_);
  return drop(sum, dropout_, pass, index(), kEmbeddingSite);
}

// ---- attention ----------------------------------------------------------------------------------

SelfAttention::SelfAttention(ParameterMaker& maker, int index, const DecoderConfig& config)
    : heads_(config.heads),
      key_heads_(config.key_heads),
      width_(config.head_width),
      layout_(config.query_key_value),
      output_gate_(config.output_gate),
      norms_whole_heads_(config.norms_whole_heads),
      limit_(config.query_key_value_limit),
      growth_(config.query_growth) {
  const bool windowed = config.block_windowed(index - 1);
  options_.scale = config.attention_scale;
  // Layer 1 is the first block, whose scores are divided by 1.
  if (config.scale_by_block_index) options_.scale /= index;
  options_.dropout = config.attention_dropout;
  options_.layer = index;
  options_.window = windowed ? config.window : 0;
  options_.softcap = config.attention_softcap;
  if (!config.block_unrotated(index - 1)) {
    rotary_ = windowed && config.window_rotary ? config.window_rotary : config.rotary;
  }

  const std::string prefix = config.block_prefix(index);
  const DecoderNames& names = config.names;
  const auto matrix = [&](const std::string& name, std::int64_t heads) {
    inputs_.emplace_back(
        maker, prefix + name,
        LinearShape{config.hidden, heads * width_, config.layout, config.query_key_value_bias});
  };
  if (layout_ == QueryKeyValue::separate) {
    matrix(names.query, output_gate_ ? 2 * heads_ : heads_);
    matrix(names.key, key_heads_);
    matrix(names.value, key_heads_);
  } else {
    matrix(names.query_key_value, heads_ + 2 * key_heads_);
  }
  const auto normed = [&](std::int64_t heads) {
    return norms_whole_heads_ ? heads * width_ : width_;
  };
  query_norm_ = optional_norm(maker, prefix, names.query_norm, normed(heads_), config.norm);
  key_norm_ = optional_norm(maker, prefix, names.key_norm, normed(key_heads_), config.norm);
  if (!names.sinks.empty()) sinks_ = maker.make(prefix + names.sinks, {heads_});
  output_.emplace(
      maker, prefix + names.attention_output,
      LinearShape{heads_ * width_, config.hidden, config.layout, config.attention_output_bias});
}

kernels::AttentionHeads SelfAttention::project(const at::Tensor& input, const Pass& pass) const {
  const auto by_head = [&](const at::Tensor& values) {
    return values.unflatten(2, {values.size(2) / width_, width_});
  };
  if (layout_ == QueryKeyValue::separate) {
    return {by_head(inputs_[0].forward(input, pass)), by_head(inputs_[1].forward(input, pass)),
            by_head(inputs_[2].forward(input, pass))};
  }
  const at::Tensor all = inputs_[0].forward(input, pass);
  if (layout_ == QueryKeyValue::fused) {
    const std::vector<at::Tensor> parts = by_head(all).split({heads_, key_heads_, key_heads_}, 2);
    return {parts[0], parts[1], parts[2]};
  }
  const std::vector<at::Tensor> parts = all.unflatten(2, {heads_, 3 * width_}).split(width_, 3);
  return {parts[0], parts[1], parts[2]};
}

at::Tensor SelfAttention::forward(const at::Tensor& input, const Pass& pass) const {
  kernels::AttentionHeads inputs = project(input, pass);
  at::Tensor gate;
  if (output_gate_) {  // each head's follows its query
    const at::Tensor both = inputs.query.unflatten(2, {heads_, 2});
    inputs.query = both.select(3, 0);
    gate = both.select(3, 1).flatten(2);
  }
  const auto normalised = [&](const std::optional<Norm>& norm, const at::Tensor& heads) {
    if (!norm) return heads;
    if (!norms_whole_heads_) return norm->forward(heads);
    return norm->forward(heads.flatten(2)).view(heads.sizes());
  };
  inputs.query = normalised(query_norm_, inputs.query);
  inputs.key = normalised(key_norm_, inputs.key);
  if (limit_ > 0) {
    for (at::Tensor* values : {&inputs.query, &inputs.key, &inputs.value}) {
      *values = values->clamp(-limit_, limit_);
    }
  }
  if (rotary_) {
    const auto& [cosine, sine] = pass.rotary->of(*rotary_, pass.positions, input.options());
    inputs.query = kernels::rotate_heads(inputs.query, cosine, sine, rotary_->pairs);
    inputs.key = kernels::rotate_heads(inputs.key, cosine, sine, rotary_->pairs);
  }
  inputs.query = grown(inputs.query, growth_, pass);
  inputs.sinks = sinks_;
  at::Tensor attended = attend(inputs, options_, pass);
  if (gate.defined()) {
    attended =
        attended * by_value(pass, {gate}, [](const auto& token) { return token[0].sigmoid(); });
  }
  return output_->forward(attended, pass);
}

// ---- block --------------------------------------------------------------------------------------

DecoderBlock::DecoderBlock(int index, const DecoderConfig& config, ParameterMaker maker)
    : Layer(index),
      residual_(config.residual),
      scale_(config.residual_scale),
      dropout_(config.residual_dropout),
      attention_norm_(optional_norm(maker, config.block_prefix(index), config.names.attention_norm,
                                    config.hidden, config.norm)),
      attention_(make_attention(maker, index, config)),
      after_attention_norm_(optional_norm(maker, config.block_prefix(index),
                                          config.names.after_attention_norm, config.hidden,
                                          config.norm)),
      mlp_norm_(optional_norm(maker, config.block_prefix(index), config.names.mlp_norm,
                              config.hidden, config.norm)),
      mlp_(make_mlp_or_experts(maker, index, config)),
      after_mlp_norm_(optional_norm(maker, config.block_prefix(index), config.names.after_mlp_norm,
                                    config.hidden, config.norm)) {
  adopt(maker);
}

at::Tensor DecoderBlock::think(const at::Tensor& input, const Pass& pass) const {
  const at::Tensor result =
      std::visit([&](const auto& mlp) { return mlp.forward(input, pass); }, mlp_);
  return scaled(drop(result, dropout_, pass, index(), kMlpSite), scale_);
}

at::Tensor DecoderBlock::forward(const at::Tensor& input, const Pass& pass) {
  const auto attend_to = [&](const at::Tensor& values) {
    const at::Tensor result = std::visit(
        [&](const auto& attention) { return attention.forward(values, pass); }, attention_);
    return scaled(drop(result, dropout_, pass, index(), kAttentionSite), scale_);
  };
  if (residual_ == Residual::after) {
    const at::Tensor middle = attention_norm_->forward(input + attend_to(input));
    return mlp_norm_->forward(middle + think(middle, pass));
  }
  const at::Tensor normal = attention_norm_ ? attention_norm_->forward(input) : input;
  at::Tensor attended = attend_to(normal);
  if (after_attention_norm_) attended = after_attention_norm_->forward(attended);
  if (residual_ == Residual::parallel) {
    return input + attended + think(mlp_norm_ ? mlp_norm_->forward(input) : normal, pass);
  }
  const at::Tensor middle = input + attended;
  at::Tensor thought = think(mlp_norm_ ? mlp_norm_->forward(middle) : middle, pass);
  if (after_mlp_norm_) thought = after_mlp_norm_->forward(thought);
  return middle + thought;
}

// ---- head ---------------------------------------------------------------------------------------

DecoderHead::DecoderHead(const DecoderConfig& config, ParameterMaker maker,
                         const at::Tensor& tokens)
    : Head(static_cast<int>(config.blocks) + 1), scale_(config.final_scale) {
  if (config.has_final_norm)
    norm_.emplace(maker, config.names.final_norm, config.hidden, config.norm);
  project_out_ = optional_linear(maker, config.names.project_out,
                                 {config.hidden, config.token_width(), MatrixLayout::output_input,
                                  /*bias=*/false});
  const std::vector<std::int64_t> shape{config.vocabulary, config.token_width()};
  kernels::Projection projection;
  projection.weight = config.tied ? maker.make_tied(config.names.tokens + ".weight", shape, tokens)
                                  : maker.make(config.names.head + ".weight", shape);
  if (config.head_bias) projection.bias = maker.make(config.names.head + ".bias", {shape[0]});
  projection.softcap = config.final_softcap;
  set_projection(std::move(projection));
  adopt(maker);
}

at::Tensor DecoderHead::forward(const at::Tensor& input, const Pass& pass) {
  const at::Tensor normal = scaled(norm_ ? norm_->forward(input) : input, scale_);
  return project_out_ ? project_out_->forward(normal, pass) : normal;
}

}  // namespace strait::models
