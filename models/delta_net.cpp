#include "models/delta_net.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/gated_product.h"
#include "models/decoder_config.h"
#include "models/key_value_cache.h"

namespace strait::models {
namespace {

LinearShape without_bias(std::int64_t input, std::int64_t output) {
  return {input, output, MatrixLayout::output_input, /*bias=*/false};
}

std::vector<kernels::AttentionSpan> whole_rows(const at::Tensor& values) {
  std::vector<kernels::AttentionSpan> spans;
  spans.reserve(static_cast<std::size_t>(values.size(0)));
  for (std::int64_t row = 0; row < values.size(0); ++row) spans.push_back({row, 0, values.size(1)});
  return spans;
}

std::string name_of(int index, const DecoderConfig& config, const char* part) {
  return config.block_prefix(index) + config.names.recurrent + part;
}

}  // namespace

DeltaNet::DeltaNet(ParameterMaker& maker, int index, const DecoderConfig& config)
    : layer_(index),
      options_(config.recurrent),
      mix_(maker, name_of(index, config, "in_proj_qkv"),
           without_bias(config.hidden, options_.channels())),
      gate_(maker, name_of(index, config, "in_proj_z"),
            without_bias(config.hidden, options_.values())),
      beta_(maker, name_of(index, config, "in_proj_b"),
            without_bias(config.hidden, options_.heads)),
      decay_(maker, name_of(index, config, "in_proj_a"),
             without_bias(config.hidden, options_.heads)),
      convolution_(maker.make(name_of(index, config, "conv1d.weight"),
                              {options_.channels(), 1, options_.taps})),
      decay_bias_(maker.make(name_of(index, config, "dt_bias"), {options_.heads})),
      decay_rate_(maker.make(name_of(index, config, "A_log"), {options_.heads})),
      norm_(maker, name_of(index, config, "norm"), options_.width,
            {NormKind::rms, config.norm.epsilon}),
      output_(maker, name_of(index, config, "out_proj"),
              without_bias(options_.values(), config.hidden)) {}

at::Tensor DeltaNet::convolve(const at::Tensor& mixed, at::Tensor& past) const {
  // The convolution of a new token sees the last tokens of the sequence, which the cache keeps.
  const at::Tensor all = past.defined() ? at::cat({past, mixed}, 1) : mixed;
  const std::int64_t kept = std::min(options_.taps - 1, all.size(1));
  past = all.narrow(1, all.size(1) - kept, kept).clone();
  const std::int64_t count = mixed.size(1);
  return kernels::causal_convolution(all, convolution_, whole_rows(all))
      .narrow(1, all.size(1) - count, count);
}

at::Tensor DeltaNet::recur(const kernels::DeltaHeads& heads, at::Tensor& state) const {
  if (!state.defined()) {
    state = at::zeros({heads.value.size(0), options_.heads, options_.key_width, options_.width},
                      heads.value.options().dtype(at::kFloat));
  }
  return kernels::continue_delta_rule(heads, state);
}

at::Tensor DeltaNet::mix_tokens(const Projected& inputs, const Pass& pass,
                                SequenceCache* past) const {
  SequenceCache::Recurrent* const recurrent = past == nullptr ? nullptr : &past->recurrent(layer_);
  const at::Tensor convolved =
      recurrent == nullptr ? kernels::causal_convolution(inputs.mixed, convolution_, pass.documents)
                           : convolve(inputs.mixed, recurrent->convolved);
  const std::vector<at::Tensor> parts =
      convolved.split_with_sizes({options_.keys(), options_.keys(), options_.values()}, 2);
  const auto by_head = [](const at::Tensor& values, std::int64_t width) {
    return values.unflatten(2, {values.size(2) / width, width});
  };
  kernels::DeltaHeads heads;
  heads.query = by_head(parts[0], options_.key_width);
  heads.key = by_head(parts[1], options_.key_width);
  heads.value = by_head(parts[2], options_.width);
  heads.beta = inputs.beta.sigmoid();
  // In float32: a decay is multiplied over all tokens of a document.
  const at::Tensor step = inputs.decay.to(at::kFloat) + decay_bias_;
  heads.decay = at::softplus(step) * decay_rate_.to(at::kFloat).exp().neg();
  const at::Tensor normal =
      norm_.forward(recurrent == nullptr ? kernels::delta_rule(heads, pass.documents)
                                         : recur(heads, recurrent->state));
  const at::Tensor gate = by_head(inputs.gate, options_.width);
  return kernels::gated_product(gate, normal, kernels::Activation::silu).flatten(2);
}

at::Tensor DeltaNet::forward(const at::Tensor& input, const Pass& pass) const {
  const Projected all{mix_.forward(input, pass), gate_.forward(input, pass),
                      beta_.forward(input, pass), decay_.forward(input, pass)};
  if (pass.cache == nullptr) return output_.forward(mix_tokens(all, pass, nullptr), pass);
  const auto mix_own = [&](SequenceCache& sequence, const std::vector<at::Tensor>& own) {
    return mix_tokens({own[0], own[1], own[2], own[3]}, pass, &sequence);
  };
  return output_.forward(
      pass.cache->by_sequence({all.mixed, all.gate, all.beta, all.decay}, mix_own), pass);
}

}  // namespace strait::models
