#include "stages/gradients.h"

#include <ATen/ATen.h>

namespace strait::stages {

Gradients::Gradients(const std::vector<models::Parameter>& parameters) {
  for (const models::Parameter& parameter : parameters) {
    leaves_.push_back(parameter.value);
    sums_.push_back(at::zeros(parameter.value.sizes(),
                              parameter.value.options().dtype(at::kFloat).requires_grad(false)));
    if (parameter.value.scalar_type() == at::kFloat) leaves_.back().mutable_grad() = sums_.back();
  }
}

void Gradients::fold() {
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    at::Tensor& leaf = leaves_[i];
    if (leaf.scalar_type() == at::kFloat || !leaf.grad().defined()) continue;
    sums_[i].add_(leaf.grad().to(at::kFloat));
    leaf.mutable_grad().zero_();
  }
}

void Gradients::clear() {
  for (at::Tensor& sum : sums_) sum.zero_();
}

void Gradients::scale(double factor) {
  // A factor of one must not cost a pass over all gradients.
  if (factor == 1.0) return;
  for (at::Tensor& sum : sums_) sum.mul_(factor);
}

at::Tensor& Gradients::of(const at::Tensor& leaf) {
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (leaves_[i].is_same(leaf)) return sums_[i];
  }
  TORCH_INTERNAL_ASSERT(false, "a gradient was asked for that no parameter of this stage has");
}

}  // namespace strait::stages
