#include "stages/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "framework/name_pattern.h"
#include "kernels/kernel_tensors.h"
#include "kernels/random.h"
#include "stages/muon.h"
#include "stages/transfer.h"

namespace strait::stages {

namespace {

using kernels::CodedMoment;
using kernels::MomentKind;

// Values of a part: 8 MiB of float32 for both moments, decoded. A multiple of a block.
constexpr std::int64_t kPartOfParameter = std::int64_t{1} << 20U;

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
  for (std::int64_t first = 0; first < values; first += kPartOfParameter) {
    work(first, std::min(kPartOfParameter, values - first));
  }
}

// Draws of a rounding, which differ from step to step.
std::uint64_t rounding_key(const AdamW::Slot& slot, MomentKind kind, std::int64_t first) {
  return kernels::mix_key({kernels::hash_name(slot.name),
                           static_cast<std::uint64_t>(slot.updates.item<std::int64_t>()),
                           static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(first)});
}

at::TensorOptions options_of(const std::vector<models::Parameter>& parameters, bool offload) {
  return at::TensorOptions().device(offload ? at::kCPU : device_of(parameters));
}

// Not for masters that are the model's own parameters, which every forward reads.
std::filesystem::path file_of_masters(const std::vector<models::Parameter>& parameters,
                                      const AdamWOptions& options) {
  const bool apart = std::ranges::any_of(parameters, [&](const models::Parameter& parameter) {
    return parameter.value.scalar_type() != at::kFloat ||
           (options.offload && !parameter.value.is_cpu());
  });
  return apart ? options.disk_file : std::filesystem::path();
}

// What this replica has moments of.
sync::Layout owned_pieces(const sync::Layout& layout, const AdamWOptions& options) {
  const std::vector<std::size_t> owners = sync::owners_of(layout, options.sharers);
  std::vector<sync::PieceSpec> owned;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] == options.sharer) owned.push_back(layout.pieces()[i].spec);
  }
  return sync::Layout(owned);
}

// Muon has no second moments.
sync::Layout without_muon(const sync::Layout& layout, const std::set<std::string>& muon) {
  if (muon.empty()) return layout;
  std::vector<sync::PieceSpec> kept;
  for (const sync::Piece& piece : layout.pieces()) {
    if (!muon.contains(piece.spec.name)) kept.push_back(piece.spec);
  }
  return sync::Layout(kept);
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
      masters_(layout, options_of(parameters, options.offload), at::kFloat,
               file_of_masters(parameters, options)),
      first_moments_(owned_pieces(layout, options), options_of(parameters, options.offload),
                     scalar_type(options.moments), options.disk_file),
      second_moments_(without_muon(owned_pieces(layout, options), options.muon),
                      options_of(parameters, options.offload), scalar_type(options.moments),
                      options.disk_file),
      offloaded_(options.offload && !device_of(parameters).is_cpu()) {
  TORCH_INTERNAL_ASSERT(!offloaded_ || options.muon.empty(), "Muon updates where parameters are");
  transfer_ = std::make_unique<Transfer>(offloaded_ ? device_of(parameters) : at::kCPU);
  std::int64_t block = 0;
  const sync::Layout owned = owned_pieces(layout, options);
  const sync::Layout squares = without_muon(owned, options.muon);
  if (options.moments == MomentType::int8) {
    block_sizes_ = at::zeros({2, blocks_of(owned)}, masters_.whole().options());
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
    // A tied LM head that shares the embedding's memory has the same name. Its storage moves too,
    // but the weight has only one slot.
    const bool again = !placed.insert(parameter.name).second;
    if (!again) master.copy_(parameter.value.detach());
    const bool narrow = parameter.value.scalar_type() != at::kFloat;
    if (!narrow && !offloaded_) parameter.value.set_data(master);
    if (again) continue;
    Slot& slot = slots_.emplace_back();
    slot.name = parameter.name;
    slot.master = master;
    slot.updates = at::zeros({}, at::kFloat);
    slot.rate = rate_of(parameter.name, options.rates);
    slot.owned = owned.contains(slot.name);
    values_.push_back(parameter.value.detach());
    gradient_of_.push_back(i);
    if (!slot.owned) continue;
    slot.first_moment = coded(first_moments_, owned.piece(slot.name), MomentKind::first);
    if (!options.muon.contains(slot.name)) {
      slot.second_moment = coded(second_moments_, squares.piece(slot.name), MomentKind::second);
    }
    block += kernels::moment_blocks(piece.range.count());
  }
}

AdamW::~AdamW() = default;

void AdamW::update(Gradients& gradients, double learning_rate, sync::UpdateRule rule,
                   std::size_t members) {
  const at::NoGradGuard no_grad;
  const bool by_own = rule == sync::UpdateRule::own_gradient && members > 1;
  if (rule == sync::UpdateRule::moment_given) {
    update_by_moments(learning_rate);
  } else if (offloaded_ || !in_float()) {
    update_in_parts(gradients, learning_rate, by_own ? members : 1);
    if (offloaded_) return;
  } else if (by_own) {
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
  if (!shares_state()) publish();
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
    if (!slot.owned) continue;
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

void AdamW::update_in_parts(Gradients& gradients, double learning_rate, std::size_t members) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].updates.add_(1);
    if (!slots_[i].owned) continue;
    if (!slots_[i].second_moment.values.defined()) {
      update_matrix(slots_[i], gradients[gradient_of_[i]], learning_rate);
      continue;
    }
    in_parts(slots_[i].master.numel(), [&](std::int64_t first, std::int64_t count) {
      parts.push_back({i, first, count});
    });
  }
  const auto fetch = [&](const Part& part) {
    const at::Tensor gradient = gradients[gradient_of_[part.slot]].view({-1});
    return transfer_->to_host(gradient.narrow(0, part.first, part.count));
  };
  Copied next;
  if (!parts.empty()) next = fetch(parts[0]);
  for (std::size_t k = 0; k < parts.size(); ++k) {
    Copied gradient = std::exchange(next, {});
    // One part ahead: its copy goes on while the CPU updates this one.
    if (k + 1 < parts.size()) next = fetch(parts[k + 1]);
    update_part(parts[k], Transfer::wait(std::move(gradient)), learning_rate, members);
    if (offloaded_) publish(parts[k]);
  }
}

void AdamW::update_part(const Part& part, const at::Tensor& gradient, double learning_rate,
                        std::size_t members) {
  const Slot& slot = slots_[part.slot];
  const at::Tensor weights = slot.master.view({-1}).narrow(0, part.first, part.count);
  const CodedMoment mean = part_of(flat(slot.first_moment), part.first, part.count);
  const CodedMoment square = part_of(flat(slot.second_moment), part.first, part.count);
  at::Tensor first = mean.values;
  at::Tensor second = square.values;
  if (has_codes()) {
    const at::Tensor decoded = at::empty({2, part.count}, weights.options());
    first = decoded[0];
    second = decoded[1];
    kernels::decode_moment(mean, MomentKind::first, first);
    kernels::decode_moment(square, MomentKind::second, second);
  }
  if (members > 1) {
    kernels::averaged_adamw(weights, gradient, first, second,
                            rule_of(slot, learning_rate, members));
  } else {
    at::_fused_adamw_({weights}, {gradient}, {first}, {second}, {},
                      counters_for(weights, {slot.updates}), learning_rate * slot.rate,
                      options_.beta1, options_.beta2, decay_of(slot), options_.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
  if (!has_codes()) return;
  kernels::encode_moment(first, MomentKind::first,
                         rounding_key(slot, MomentKind::first, part.first), mean);
  kernels::encode_moment(second, MomentKind::second,
                         rounding_key(slot, MomentKind::second, part.first), square);
}

void AdamW::update_matrix(const Slot& slot, const at::Tensor& gradient, double learning_rate) {
  const CodedMoment coded = flat(slot.first_moment);
  at::Tensor momentum = slot.first_moment.values;
  if (has_codes()) {
    momentum = at::empty_like(slot.master);
    kernels::decode_moment(coded, MomentKind::first, momentum.view({-1}));
  }
  muon_update(slot.master, gradient, momentum, learning_rate * slot.rate, options_.weight_decay);
  if (!has_codes()) return;
  kernels::encode_moment(momentum.view({-1}), MomentKind::first,
                         rounding_key(slot, MomentKind::first, 0), coded);
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
    if (has_codes()) {
      kernels::encode_moment(plain, kind, rounding_key(slot, kind, first), target);
    } else {
      target.values.copy_(plain);
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
    if (!slots_[i].owned) continue;
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

bool AdamW::is_apart(std::size_t slot) const {
  return offloaded_ || values_[slot].scalar_type() != at::kFloat;
}

void AdamW::publish(const Part& part) {
  const auto within = [&part](const at::Tensor& tensor) {
    return tensor.view({-1}).narrow(0, part.first, part.count);
  };
  const at::Tensor& value = values_[part.slot];
  const at::Tensor rounded = within(slots_[part.slot].master).to(value.scalar_type());
  within(value).copy_(transfer_->arrive(transfer_->to_device(rounded)));
}

void AdamW::publish() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (offloaded_) {
      in_parts(slots_[i].master.numel(), [&](std::int64_t first, std::int64_t count) {
        publish({i, first, count});
      });
    } else if (is_apart(i)) {
      values_[i].copy_(slots_[i].master);
    }
  }
}

void AdamW::adopt() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (is_apart(i)) slots_[i].master.copy_(values_[i]);
  }
}

}  // namespace strait::stages
