#include "stages/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>

#include "kernels/averaged_adamw.h"
#include "kernels/host_values.h"

namespace strait::stages {
namespace {

at::TensorOptions options_of(const std::vector<models::Parameter>& parameters) {
  return at::TensorOptions().device(device_of(parameters));
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
      first_moments_(layout, options_of(parameters)),
      second_moments_(layout, options_of(parameters)) {
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
    slots_.push_back(Slot{parameter.name, master, first_moments_.of(piece),
                          second_moments_.of(piece), at::zeros({}, at::kFloat)});
    values_.push_back(parameter.value.detach());
    gradient_of_.push_back(i);
  }
}

void AdamW::update(Gradients& gradients, double learning_rate, sync::UpdateRule rule,
                   std::size_t members) {
  const at::NoGradGuard no_grad;
  if (rule == sync::UpdateRule::moment_given) {
    update_by_moments(learning_rate);
  } else if (rule == sync::UpdateRule::own_gradient && members > 1) {
    update_by_own(gradients, learning_rate, members);
    // Two groups, because the fused kernel takes one weight decay for all of its tensors.
  } else {
    update_group(gradients, learning_rate, true);
    update_group(gradients, learning_rate, false);
  }
  publish();
}

// The sync method has set the moments. The first moment needs no bias correction: the method
// takes over only after many updates. The second moment keeps the correction of its last update.
void AdamW::update_by_moments(double learning_rate) {
  for (Slot& slot : slots_) {
    const auto updates = slot.updates.item<double>();
    const double correction = 1.0 - std::pow(options_.beta2, std::max(updates, 1.0));
    const at::Tensor size = (slot.second_moment / correction).sqrt_().add_(options_.epsilon);
    slot.master.mul_(1.0 - learning_rate * decay_of(slot));
    slot.master.addcdiv_(slot.first_moment, size, -learning_rate);
  }
}

void AdamW::update_by_own(Gradients& gradients, double learning_rate, std::size_t members) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.updates.add_(1);
    kernels::averaged_adamw(slot.master, gradients[gradient_of_[i]], slot.first_moment,
                            slot.second_moment,
                            {.learning_rate = learning_rate,
                             .beta1 = options_.beta1,
                             .beta2 = options_.beta2,
                             .epsilon = options_.epsilon,
                             .weight_decay = decay_of(slot),
                             .updates = slot.updates.item<std::int64_t>(),
                             .copies = static_cast<std::int64_t>(members)});
  }
}

double AdamW::decay_of(const Slot& slot) const {
  return slot.master.dim() >= 2 ? options_.weight_decay : 0.0;
}

void AdamW::update_group(Gradients& gradients, double learning_rate, bool decays) {
  std::vector<at::Tensor> masters;
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  std::vector<at::Tensor> updates;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if ((slots_[i].master.dim() >= 2) != decays) continue;
    slots_[i].updates.add_(1);
    masters.push_back(slots_[i].master);
    sums.push_back(gradients[gradient_of_[i]]);
    first.push_back(slots_[i].first_moment);
    second.push_back(slots_[i].second_moment);
    updates.push_back(slots_[i].updates);
  }
  if (masters.empty()) return;
  at::_fused_adamw_(masters, sums, first, second, {}, counters_for(masters.front(), updates),
                    learning_rate, options_.beta1, options_.beta2,
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

}  // namespace strait::stages
