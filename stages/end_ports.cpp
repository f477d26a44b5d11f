#include "stages/end_ports.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "kernels/cross_entropy.h"
#include "kernels/host_values.h"

namespace strait::stages {
namespace {

// The positions of a flattened [rows * length] tensor that predict a token, and the predicted
// tokens.
struct Targets {
  at::Tensor positions;  // int64
  at::Tensor tokens;     // int64
};

Targets targets_of(const codec::Rows& rows, const data::TokenFile& file, const at::Tensor& weight) {
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> tokens;
  std::int64_t row_start = 0;
  for (const codec::Row& row : rows.rows) {
    const auto ids = file.tokens(row.sample);
    for (const std::int64_t place : file.targets(row.sample)) {
      positions.push_back(row_start + place - 1);
      tokens.push_back(ids[static_cast<std::size_t>(place)]);
    }
    row_start += rows.padded_length;
  }
  kernels::check_targets(tokens, weight.size(0));
  const auto there = [&](const std::vector<std::int64_t>& values) {
    return kernels::on_device(at::tensor(values, at::kLong), weight.device());
  };
  return {there(positions), there(tokens)};
}

}  // namespace

Flow BatchUpstream::take(const Phase& phase, MicroBatch micro_batch) {
  codec::Rows rows = source_.rows(phase, micro_batch);
  std::vector<std::int64_t> tokens = source_.padded_tokens(phase, micro_batch);
  if (tie_ != nullptr) tokens = tie_->rows_of(micro_batch, std::move(tokens));
  at::Tensor values = at::tensor(tokens, at::kLong).view({rows.size(), rows.padded_length});
  return Flow{std::move(values), std::move(rows)};
}

void BatchUpstream::give_gradient(const Phase&, MicroBatch micro_batch, at::Tensor gradient) {
  TORCH_INTERNAL_ASSERT(!gradient.defined(), "tokens have no gradient");
  if (tie_ != nullptr) tie_->backward_done(micro_batch);
}

LossDownstream::LossDownstream(models::Head& head, Gradients& gradients, const BatchSource& source)
    : head_(head), gradients_(gradients), source_(source) {
  // The loss adds these gradients in its forward, so autograd never reports them.
  gradients_.added_before_backward(head_.projection().weight);
  if (head_.projection().bias.defined()) {
    gradients_.added_before_backward(head_.projection().bias);
  }
}

void LossDownstream::reset_if_reported(const std::optional<Phase>& collected) {
  if (!reported_ || (collected && *collected == *reported_)) return;
  loss_sum_.reset();
  tokens_ = 0;
  reported_.reset();
}

void LossDownstream::give(const Phase& phase, MicroBatch micro_batch, Flow flow) {
  const at::NoGradGuard no_grad;
  reset_if_reported(std::nullopt);
  const kernels::Projection& leaves = head_.projection();
  const Targets targets = targets_of(flow.rows, source_.file(phase), leaves.weight);
  const at::Tensor hidden = flow.values.flatten(0, 1);
  const at::Tensor chosen = hidden.index_select(0, targets.positions);
  const kernels::Projection projection = kernels::detached(leaves);
  tokens_ += flow.rows.tokens();
  if (!phase.training) {
    add_loss(kernels::cross_entropy_loss(projection, chosen, targets.tokens));
    return;
  }
  // Once per step: the loss and every gradient are divided by the target tokens of the whole step.
  if (phase.step != counted_step_ || target_tokens_ == 0) {
    counted_step_ = phase.step;
    target_tokens_ = source_.target_tokens(phase);
  }
  const auto sum_of = [this](const at::Tensor& leaf) {
    return leaf.defined() && leaf.requires_grad() ? gradients_.of(leaf) : at::Tensor();
  };
  const kernels::Projection sums{sum_of(leaves.weight), sum_of(leaves.bias)};
  const double scale = target_tokens_ == 0 ? 0.0 : 1.0 / static_cast<double>(target_tokens_);
  const kernels::CrossEntropyResult result =
      kernels::cross_entropy(projection, chosen, targets.tokens, scale, sums);
  add_loss(result.loss_sum);
  at::Tensor gradient = at::zeros_like(hidden);
  gradient.index_copy_(0, targets.positions, result.hidden_gradient);
  gradients_ready_.emplace(micro_batch, gradient.view(flow.values.sizes()));
}

at::Tensor LossDownstream::take_gradient(const Phase&, MicroBatch micro_batch) {
  return std::move(gradients_ready_.extract(micro_batch).mapped());
}

void LossDownstream::add_loss(const at::Tensor& sum) {
  loss_sum_ = loss_sum_.defined() ? loss_sum_.add_(sum) : sum;
}

at::Tensor LossDownstream::loss_sum(const Phase& phase) {
  reset_if_reported(phase);
  return loss_sum_;
}

StepReport LossDownstream::collect(const Phase& phase, double loss_sum) {
  StepReport report;
  report.step = phase.step;
  report.target_tokens = source_.target_tokens(phase);
  report.tokens = tokens_;
  report.loss =
      report.target_tokens == 0 ? 0.0 : loss_sum / static_cast<double>(report.target_tokens);
  reported_ = phase;
  return report;
}

}  // namespace strait::stages
