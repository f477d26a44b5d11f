#include "stages/gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "kernels/weight_gradient_queue.h"

namespace strait::stages {
namespace {

// Runs after autograd, or a backward function of ours, has added the gradient of one leaf.
class ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(std::shared_ptr<const bool> announces, std::function<void()> ready)
      : announces_(std::move(announces)), ready_(std::move(ready)) {}
  void operator()(const torch::autograd::Variable& leaf) override {
    if (*announces_ && !kernels::is_left_for_later(leaf)) ready_();
  }

 private:
  std::shared_ptr<const bool> announces_;
  std::function<void()> ready_;
};

}  // namespace

at::Device device_of(const std::vector<models::Parameter>& trained) {
  return trained.empty() ? at::Device(at::kCPU) : trained.front().value.device();
}

Gradients::Gradients(const std::vector<models::Parameter>& parameters, const sync::Layout& layout)
    : whole_(layout, at::TensorOptions().device(device_of(parameters))) {
  for (const models::Parameter& parameter : parameters) {
    const bool again = std::find(names_.begin(), names_.end(), parameter.name) != names_.end();
    names_.push_back(parameter.name);
    leaves_.push_back(parameter.value);
    if (again) {
      apart_.push_back(at::zeros(parameter.value.sizes(),
                                 parameter.value.options().dtype(at::kFloat).requires_grad(false)));
    }
    sums_.push_back(again ? apart_.back() : whole_.of(layout.piece(parameter.name)));
    // Backward functions and autograd add to these buffers in place, also to a wider type.
    leaves_.back().mutable_grad() = sums_.back();
  }
}

void Gradients::on_ready(const sync::Layout& layout,
                         const std::function<void(sync::Range)>& ready) {
  ready_ = [ready, &layout, this](std::size_t i) {
    const auto namesakes = std::count(names_.begin(), names_.end(), names_[i]);
    const sync::Piece& piece = layout.piece(names_[i]);
    // The gradient of a tied weight is complete only after its two parts are added.
    if (namesakes == 1 && !piece.spec.tied) ready(piece.range);
  };
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        leaves_[i], std::make_unique<ReadyHook>(announces_, [this, i] { ready_(i); }));
  }
}

void Gradients::announce(bool on) {
  *announces_ = on;
  if (!on || !ready_) return;
  for (const std::size_t i : early_) ready_(i);
}

void Gradients::added_before_backward(const at::Tensor& leaf) {
  const auto is_leaf = [&](const at::Tensor& one) { return one.is_same(leaf); };
  const auto found = std::ranges::find_if(leaves_, is_leaf);
  if (found != leaves_.end()) early_.push_back(static_cast<std::size_t>(found - leaves_.begin()));
}

// One pass over the layout: a device gets one operation instead of one per parameter.
template <class Change>
void Gradients::change_all(Change change) {
  change(whole_.whole());
  for (const at::Tensor& sum : apart_) change(sum);
}

void Gradients::clear() {
  change_all([](const at::Tensor& sums) { sums.zero_(); });
}

void Gradients::scale(double factor) {
  // A factor of one must not cost a pass over all gradients.
  if (factor == 1.0) return;
  change_all([factor](const at::Tensor& sums) { sums.mul_(factor); });
}

at::Tensor& Gradients::of(const at::Tensor& leaf) {
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (leaves_[i].is_same(leaf)) return sums_[i];
  }
  TORCH_INTERNAL_ASSERT(false, "no parameter of this stage has this gradient");
}

}  // namespace strait::stages
