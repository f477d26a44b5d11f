#include "stages/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace strait::stages {
namespace {

bool shares_storage(const at::Tensor& value, const std::vector<at::Tensor>& others) {
  return std::any_of(others.begin(), others.end(), [&](const at::Tensor& other) {
    return other.const_data_ptr() == value.const_data_ptr();
  });
}

}  // namespace

AdamW::AdamW(const std::vector<models::Parameter>& parameters, const AdamWOptions& options)
    : options_(options) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const models::Parameter& parameter = parameters[i];
    if (shares_storage(parameter.value, values_)) continue;
    const at::Tensor value = parameter.value.detach();
    const at::Tensor master = value.scalar_type() == at::kFloat ? value : value.to(at::kFloat);
    slots_.push_back(Slot{parameter.name, parameter.owned, master, at::zeros_like(master),
                          at::zeros_like(master), at::zeros({}, master.options())});
    values_.push_back(value);
    gradient_of_.push_back(i);
  }
}

void AdamW::update(Gradients& gradients, double learning_rate) {
  const at::NoGradGuard no_grad;
  update_group(gradients, learning_rate, true);
  update_group(gradients, learning_rate, false);
  publish();
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
  at::_fused_adamw_(masters, sums, first, second, {}, updates, learning_rate, options_.beta1,
                    options_.beta2, decays ? options_.weight_decay : 0.0, options_.epsilon,
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
