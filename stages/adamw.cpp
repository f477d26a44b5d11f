#include "stages/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <regex>

#include "framework/name_pattern.h"
#include "kernels/kernel_tensors.h"
#include "kernels/random.h"

namespace strait::stages {

namespace {

using kernels::CodedMoment;
using kernels::MomentKind;

// Values of a narrow moment that are decoded at a time: 8 MiB of float32 for both moments. A
// multiple of a block.
constexpr std::int64_t kDecodedValues = std::int64_t{1} << 20U;

at::ScalarType scalar_type(MomentType type) {
  switch (type) {
    case MomentType::bfloat16:
      return at::kBFloat16;
    case MomentType::int8:
      return at::kByte;
    case MomentType::float32:
      break;
  }
  return at::kFloat;
}

std::int64_t blocks_of(const sync::Layout& layout) {
  std::int64_t blocks = 0;
  for (const sync::Piece& piece : layout.pieces())
    blocks += kernels::moment_blocks(piece.range.count());
  return blocks;
}

CodedMoment flat(const CodedMoment& moment) { return {moment.values.view({-1}), moment.sizes}; }

// A part of a flat moment that begins with a block.
CodedMoment part_of(const CodedMoment& moment, std::int64_t first, std::int64_t count) {
  CodedMoment part{moment.values.narrow(0, first, count), {}};
  if (moment.sizes.defined()) {
    part.sizes =
        moment.sizes.narrow(0, first / kernels::kMomentBlock, kernels::moment_blocks(count));
  }
  return part;
}

// Calls work(first, count) for every part of a parameter.
template <class Work>
void in_parts(std::int64_t values, const Work& work) {
  for (std::int64_t first = 0; first < values; first += kDecodedValues) {
    work(first, std::min(kDecodedValues, values - first));
  }
}

// Draws of a rounding, which differ from step to step.
std::uint64_t rounding_key(const AdamW::Slot& slot, MomentKind kind, std::int64_t first) {
  return kernels::mix_key({kernels::hash_name(slot.name),
                           static_cast<std::uint64_t>(slot.updates.item<std::int64_t>()),
                           static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(first)});
}

at::TensorOptions options_of(const std::vector<models::Parameter>& parameters) {
  return at::TensorOptions().device(device_of(parameters));
}

double rate_of(const std::string& name, const std::map<std::string, double>& rates) {
  for (const auto& [pattern, rate] : rates) {
    if (std::regex_match(name, compile_pattern(pattern))) return rate;
  }
  return 1;
}

// The fused kernel reads its counters on the device of the weights.
std::vector<at::Tensor> counters_for(const at::Tensor& master,
                                     const std::vector<at::Tensor>& counters) {
  if (master.is_cpu()) return counters;
  return kernels::on_device(at::stack(counters), master.device()).unbind();
}

}  // namespace

AdamW::AdamW(const std::vector<models::Parameter>& parameters, const sync::Layout& layout,
             const AdamWOptions& options)
    : options_(options),
      masters_(layout, options_of(parameters)),
      first_moments_(layout, options_of(parameters), scalar_type(options.moments)),
      second_moments_(layout, options_of(parameters), scalar_type(options.moments)) {
  std::int64_t block = 0;
  if (options.moments == MomentType::int8) {
    block_sizes_ = at::zeros({2, blocks_of(layout)}, options_of(parameters).dtype(at::kFloat));
  }
  const auto coded = [&](const FlatTensor& moments, const sync::Piece& piece, MomentKind kind) {
    CodedMoment moment{moments.of(piece), {}};
    if (block_sizes_.defined()) {
      moment.sizes = block_sizes_[static_cast<std::int64_t>(kind)].narrow(
          0, block, kernels::moment_blocks(piece.range.count()));
    }
    return moment;
  };
  std::set<std::string> placed;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const models::Parameter& parameter = parameters[i];
    const sync::Piece& piece = layout.piece(parameter.name);
    const at::Tensor master = masters_.of(piece);
    const bool narrow = parameter.value.scalar_type() != at::kFloat;
    // A tied LM head that shares the embedding's memory has the same name. Its storage moves too,
    // but the weight has only one slot.
    const bool again = !placed.insert(parameter.name).second;
    if (!again) master.copy_(parameter.value.detach());
    if (!narrow) parameter.value.set_data(master);
    if (again) continue;
    slots_.push_back(Slot{parameter.name, master, coded(first_moments_, piece, MomentKind::first),
                          coded(second_moments_, piece, MomentKind::second),
                          at::zeros({}, at::kFloat), rate_of(parameter.name, options.rates)});
    block += kernels::moment_blocks(piece.range.count());
    values_.push_back(parameter.value.detach());
    gradient_of_.push_back(i);
  }
}

void AdamW::update(Gradients& gradients, double learning_rate, sync::UpdateRule rule,
                   std::size_t members) {
  const at::NoGradGuard no_grad;
  if (rule == sync::UpdateRule::moment_given) {
    update_by_moments(learning_rate);
  } else if (!has_float_moments()) {
    update_narrow(gradients, learning_rate, rule == sync::UpdateRule::own_gradient ? members : 1);
  } else if (rule == sync::UpdateRule::own_gradient && members > 1) {
    update_by_own(gradients, learning_rate, members);
    // In groups, because the fused kernel takes one rate and weight decay for all of its tensors.
  } else {
    std::set<double> rates;
    for (const Slot& slot : slots_) rates.insert(slot.rate);
    for (const double rate : rates) {
      update_group(gradients, learning_rate, rate, true);
      update_group(gradients, learning_rate, rate, false);
    }
  }
  publish();
}

// The sync method has set the moments. The first moment needs no bias correction: the method
// takes over only after many updates. The second moment keeps the correction of its last update.
void AdamW::update_by_moments(double learning_rate) {
  TORCH_INTERNAL_ASSERT(has_float_moments(), "a sync method changes moments of few bits");
  for (Slot& slot : slots_) {
    const auto updates = slot.updates.item<double>();
    const double correction = 1.0 - std::pow(options_.beta2, std::max(updates, 1.0));
    const at::Tensor size = (slot.second_moment.values / correction).sqrt_().add_(options_.epsilon);
    slot.master.mul_(1.0 - learning_rate * slot.rate * decay_of(slot));
    slot.master.addcdiv_(slot.first_moment.values, size, -learning_rate * slot.rate);
  }
}

void AdamW::update_by_own(Gradients& gradients, double learning_rate, std::size_t members) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.updates.add_(1);
    kernels::averaged_adamw(slot.master, gradients[gradient_of_[i]], slot.first_moment.values,
                            slot.second_moment.values, rule_of(slot, learning_rate, members));
  }
}

kernels::AveragedAdamW AdamW::rule_of(const Slot& slot, double learning_rate,
                                      std::size_t members) const {
  return {.learning_rate = learning_rate * slot.rate,
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .epsilon = options_.epsilon,
          .weight_decay = decay_of(slot),
          .updates = slot.updates.item<std::int64_t>(),
          .copies = static_cast<std::int64_t>(members)};
}

void AdamW::update_narrow(Gradients& gradients, double learning_rate, std::size_t members) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.updates.add_(1);
    const at::Tensor master = slot.master.view({-1});
    const at::Tensor gradient = gradients[gradient_of_[i]].view({-1});
    in_parts(master.numel(), [&](std::int64_t first, std::int64_t count) {
      const CodedMoment mean = part_of(flat(slot.first_moment), first, count);
      const CodedMoment square = part_of(flat(slot.second_moment), first, count);
      const at::Tensor decoded = at::empty({2, count}, master.options());
      kernels::decode_moment(mean, MomentKind::first, decoded[0]);
      kernels::decode_moment(square, MomentKind::second, decoded[1]);
      const at::Tensor weights = master.narrow(0, first, count);
      const at::Tensor own = gradient.narrow(0, first, count);
      if (members > 1) {
        kernels::averaged_adamw(weights, own, decoded[0], decoded[1],
                                rule_of(slot, learning_rate, members));
      } else {
        at::_fused_adamw_({weights}, {own}, {decoded[0]}, {decoded[1]}, {},
                          counters_for(weights, {slot.updates}), learning_rate * slot.rate,
                          options_.beta1, options_.beta2, decay_of(slot), options_.epsilon,
                          /*amsgrad=*/false, /*maximize=*/false);
      }
      kernels::encode_moment(decoded[0], MomentKind::first,
                             rounding_key(slot, MomentKind::first, first), mean);
      kernels::encode_moment(decoded[1], MomentKind::second,
                             rounding_key(slot, MomentKind::second, first), square);
    });
  }
}

void AdamW::set_moment(const Slot& slot, MomentKind kind, const CodedMoment& saved) {
  const at::NoGradGuard no_grad;
  const CodedMoment& own = kind == MomentKind::first ? slot.first_moment : slot.second_moment;
  const bool same = saved.values.scalar_type() == own.values.scalar_type();
  if (same) {
    own.values.copy_(saved.values);
    if (own.sizes.defined()) own.sizes.copy_(saved.sizes);
    return;
  }
  const auto to_device = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(own.values.device()) : tensor;
  };
  const CodedMoment from = flat({to_device(saved.values).contiguous(), to_device(saved.sizes)});
  const CodedMoment to = flat(own);
  in_parts(to.values.numel(), [&](std::int64_t first, std::int64_t count) {
    const CodedMoment part = part_of(from, first, count);
    const CodedMoment target = part_of(to, first, count);
    at::Tensor plain = part.values;
    if (plain.scalar_type() != at::kFloat) {
      plain = at::empty({count}, slot.master.options());
      kernels::decode_moment(part, kind, plain);
    }
    if (has_float_moments()) {
      target.values.copy_(plain);
    } else {
      kernels::encode_moment(plain, kind, rounding_key(slot, kind, first), target);
    }
  });
}

double AdamW::decay_of(const Slot& slot) const {
  return slot.master.dim() >= 2 ? options_.weight_decay : 0.0;
}

void AdamW::update_group(Gradients& gradients, double learning_rate, double rate, bool decays) {
  std::vector<at::Tensor> masters;
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  std::vector<at::Tensor> updates;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].rate != rate || (slots_[i].master.dim() >= 2) != decays) continue;
    slots_[i].updates.add_(1);
    masters.push_back(slots_[i].master);
    sums.push_back(gradients[gradient_of_[i]]);
    first.push_back(slots_[i].first_moment.values);
    second.push_back(slots_[i].second_moment.values);
    updates.push_back(slots_[i].updates);
  }
  if (masters.empty()) return;
  at::_fused_adamw_(masters, sums, first, second, {}, counters_for(masters.front(), updates),
                    learning_rate * rate, options_.beta1, options_.beta2,
                    decays ? options_.weight_decay : 0.0, options_.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false);
}

void AdamW::publish() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (values_[i].scalar_type() != at::kFloat) values_[i].copy_(slots_[i].master);
  }
}

void AdamW::adopt() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (values_[i].scalar_type() != at::kFloat) slots_[i].master.copy_(values_[i]);
  }
}

double learning_rate(const LearningRateOptions& options, std::int64_t step) {
  if (step < options.warmup) {
    // The first step already has a rate: step 0 of a warmup is not wasted.
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup);
  }
  const auto rest = static_cast<double>(std::max<std::int64_t>(options.steps - options.warmup, 1));
  const double progress = std::min(static_cast<double>(step - options.warmup) / rest, 1.0);
  const double range = options.peak - options.least;
  // As in transformers: by the warm-up, or 10,000 steps without one.
  const double scale = options.warmup > 0 ? static_cast<double>(options.warmup) : 10'000.0;
  switch (options.decay) {
    case Decay::cosine:
      return options.least + range * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case Decay::linear:
      return options.least + range * (1.0 - progress);
    case Decay::inverse_sqrt:
      return options.peak / std::sqrt(static_cast<double>(step - options.warmup) / scale + 1.0);
    case Decay::constant:
      break;
  }
  return options.peak;
}

}  // namespace strait::stages
