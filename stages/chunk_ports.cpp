#include "stages/chunk_ports.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "framework/codec/message.h"
#include "kernels/cross_entropy.h"
#include "kernels/kernel_tensors.h"

namespace strait::stages {
namespace {

template <class Value>
Value take_from(std::map<MicroBatch, Value>& queue, MicroBatch micro_batch) {
  auto found = queue.extract(micro_batch);
  TORCH_INTERNAL_ASSERT(!found.empty(), "micro-batch ", number(micro_batch),
                        " is taken from a chunk of this stage before that has computed it");
  return std::move(found.mapped());
}

}  // namespace

Flow LinkUpstream::take(const Phase& phase, MicroBatch micro_batch) {
  Flow flow = end_.take(codec::Kind::forward, phase, micro_batch);
  // A gradient is sent with the rows of its activation.
  if (phase.training && gradients_) rows_.insert_or_assign(micro_batch, flow.rows);
  return flow;
}

void LinkUpstream::give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) {
  if (!gradients_) return;
  codec::TensorHeader header;
  header.kind = codec::Kind::backward;
  header.step = phase.step;
  header.micro_batch = number(micro_batch);
  header.rows = std::move(rows_.extract(micro_batch).mapped());
  end_.send(std::move(header), gradient);
}

StepDecision LinkUpstream::decide(const StepReport& report) {
  end_.send_note(to_frame(report));
  return read_decision(end_.take_note("the decision on the step"));
}

void LinkDownstream::give(const Phase& phase, MicroBatch micro_batch, Flow flow) {
  codec::TensorHeader header;
  header.kind = codec::Kind::forward;
  header.evaluation = !phase.training;
  header.step = phase.step;
  header.micro_batch = number(micro_batch);
  header.rows = std::move(flow.rows);
  end_.send(std::move(header), flow.values);
}

at::Tensor LinkDownstream::take_gradient(const Phase& phase, MicroBatch micro_batch) {
  if (!gradients_) return {};
  return end_.take(codec::Kind::backward, phase, micro_batch).values;
}

StepReport LinkDownstream::collect(const Phase& phase, std::span<const double>) {
  StepReport report = read_report(end_.take_note("the report on the step"));
  if (report.step != phase.step) {
    throw codec::CodecError(
        fmt::format("received the report of step {} where that of step {} was expected",
                    number(report.step), number(phase.step)));
  }
  return report;
}

void LinkDownstream::announce(const StepDecision& decision) { end_.send_note(to_frame(decision)); }

void LocalDownstream::give(const Phase&, MicroBatch micro_batch, Flow flow) {
  queues_->activations.emplace(micro_batch, std::move(flow));
}

at::Tensor LocalDownstream::take_gradient(const Phase&, MicroBatch micro_batch) {
  return take_from(queues_->gradients, micro_batch);
}

StepReport LocalDownstream::collect(const Phase&, std::span<const double>) {
  TORCH_INTERNAL_ASSERT(false, "a port inside a stage has no reports");
}

void LocalDownstream::announce(const StepDecision&) {
  TORCH_INTERNAL_ASSERT(false, "a port inside a stage has no decisions");
}

Flow LocalUpstream::take(const Phase&, MicroBatch micro_batch) {
  return take_from(queues_->activations, micro_batch);
}

void LocalUpstream::give_gradient(const Phase&, MicroBatch micro_batch, at::Tensor gradient) {
  queues_->gradients.emplace(micro_batch, std::move(gradient));
}

StepDecision LocalUpstream::decide(const StepReport&) {
  TORCH_INTERNAL_ASSERT(false, "a port inside a stage has no decisions");
}

// The positions of a flattened [rows * length] tensor that predict a token, and the predicted
// tokens. Of preferences also the answer of each target, and the number of targets of each answer.
struct LossDownstream::Targets {
  at::Tensor positions;               // int64
  at::Tensor tokens;                  // int64
  std::vector<std::int64_t> lengths;  // by answer
  std::vector<double> undesirable;    // by answer; 1: it is
  at::Tensor answers;                 // int64
};

LossDownstream::Targets LossDownstream::targets_of(const Phase& phase,
                                                   const codec::Rows& rows) const {
  const data::TokenFile& file = source_.file(phase);
  const at::Tensor& weight = head_.projection().weight;
  Targets targets;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> answers;
  std::int64_t row_start = 0;
  for (const codec::Row& row : rows.rows) {
    const BatchSource::RowPart part = source_.part_of(phase, row);
    const auto ids = file.tokens(part.sample);
    const auto documents = file.documents(part.sample);
    const auto mask = file.loss_mask(part.sample);
    std::int32_t document = -1;
    for (const std::int64_t place : file.targets(part.sample)) {
      if (place <= part.begin || place > part.end) continue;  // predicted in another slice
      const auto at = static_cast<std::size_t>(place);
      positions.push_back(row_start + place - 1 - part.begin);
      tokens.push_back(ids[at]);
      if (preference_.loss == PreferenceLoss::none) continue;
      if (std::exchange(document, documents[at]) != documents[at]) {
        targets.lengths.push_back(0);
        targets.undesirable.push_back(mask[at] == 2 ? 1 : 0);
      }
      ++targets.lengths.back();
      answers.push_back(std::ssize(targets.lengths) - 1);
    }
    row_start += rows.padded_length;
  }
  kernels::check_targets(tokens, weight.size(0));
  const auto there = [&](const std::vector<std::int64_t>& values) {
    return kernels::on_device(at::tensor(values, at::kLong), weight.device());
  };
  targets.positions = there(positions);
  targets.tokens = there(tokens);
  targets.answers = there(answers);
  return targets;
}

namespace {

// One sum after the other: an order that no device changes.
at::Tensor sums_of_answers(const at::Tensor& of_targets, const std::vector<std::int64_t>& lengths) {
  std::vector<at::Tensor> sums;
  sums.reserve(lengths.size());
  for (const at::Tensor& answer : of_targets.split_with_sizes(lengths))
    sums.push_back(answer.sum());
  return sums.empty() ? of_targets : at::stack(sums);
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

LossDownstream::LossDownstream(models::Head& head, Gradients& gradients, const BatchSource& source,
                               const PreferenceOptions& preference, ReferenceValues* references)
    : head_(head),
      gradients_(gradients),
      source_(source),
      preference_(preference),
      references_(references) {
  // The loss adds these gradients in its forward, so autograd never reports them.
  gradients_.added_before_backward(head_.projection().weight);
  if (head_.projection().bias.defined()) {
    gradients_.added_before_backward(head_.projection().bias);
  }
}

void LossDownstream::reset_if_reported(const std::optional<Phase>& collected) {
  if (!reported_ || (collected && *collected == *reported_)) return;
  loss_sums_.reset();
  tokens_ = 0;
  reported_.reset();
}

void LossDownstream::give(const Phase& phase, MicroBatch micro_batch, Flow flow) {
  const at::NoGradGuard no_grad;
  reset_if_reported(std::nullopt);
  const kernels::Projection& leaves = head_.projection();
  const Targets targets = targets_of(phase, flow.rows);
  const at::Tensor hidden = flow.values.flatten(0, 1);
  const at::Tensor chosen = hidden.index_select(0, targets.positions);
  const kernels::Projection projection = kernels::detached(leaves);
  const bool prefers = preference_.loss != PreferenceLoss::none;
  at::Tensor weights;
  if (prefers) {
    const at::Tensor sums = sums_of_answers(
        kernels::log_probabilities(projection, chosen, targets.tokens), targets.lengths);
    if (phase.reference != Phase::Reference::none) return keep_reference(phase, flow.rows, sums);
    weights = prefer(phase, flow.rows, targets, sums);
  }
  tokens_ += flow.rows.tokens();
  if (!phase.training) {
    if (!prefers) add_loss(kernels::cross_entropy_loss(projection, chosen, targets.tokens));
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
      kernels::cross_entropy(projection, chosen, targets.tokens, scale, sums, weights);
  if (!prefers) add_loss(result.loss_sum);
  at::Tensor gradient = at::zeros_like(hidden);
  gradient.index_copy_(0, targets.positions, result.hidden_gradient);
  gradients_ready_.emplace(micro_batch, gradient.view(flow.values.sizes()));
}

at::Tensor LossDownstream::take_gradient(const Phase&, MicroBatch micro_batch) {
  return std::move(gradients_ready_.extract(micro_batch).mapped());
}

void LossDownstream::add_loss(const at::Tensor& sums) {
  loss_sums_ = loss_sums_.defined() ? loss_sums_.add_(sums) : sums;
}

void LossDownstream::keep_reference(const Phase& phase, const codec::Rows& rows,
                                    const at::Tensor& sums) {
  const at::Tensor read = sums.cpu();
  const auto* next = read.const_data_ptr<double>();
  for (const codec::Row& row : rows.rows) {
    const auto* const end = next + row.documents.size();
    references_->put(phase, row.sample, {next, end});
    next = end;
  }
}

at::Tensor LossDownstream::prefer(const Phase& phase, const codec::Rows& rows,
                                  const Targets& targets, const at::Tensor& sums) {
  if (targets.lengths.empty()) return {};  // an evaluation's last micro-batches may have no rows
  const auto there = [&](const auto& values) {
    return kernels::on_device(at::tensor(values, at::kDouble), sums.device());
  };
  at::Tensor reference;
  if (references_ != nullptr) {
    std::vector<double> values;
    for (const codec::Row& row : rows.rows) {
      const std::vector<double>& known = references_->of(phase, row.sample);
      values.insert(values.end(), known.begin(), known.end());
    }
    reference = there(values);
  }
  const PreferenceResult result = preference_loss(preference_, sums, there(targets.lengths),
                                                  reference, there(targets.undesirable));
  add_loss(result.sums);
  return result.weights.to(at::kFloat).index_select(0, targets.answers);
}

at::Tensor LossDownstream::loss_sums(const Phase& phase) {
  reset_if_reported(phase);
  return loss_sums_;
}

StepReport LossDownstream::collect(const Phase& phase, std::span<const double> loss_sums) {
  StepReport report;
  report.step = phase.step;
  report.target_tokens = source_.target_tokens(phase);
  report.tokens = tokens_;
  const auto mean = [&](std::size_t i) {
    const bool known = report.target_tokens > 0 && i < loss_sums.size();
    return known ? loss_sums[i] / static_cast<double>(report.target_tokens) : 0.0;
  };
  report.loss = mean(0);
  report.margin = mean(1);
  report.accuracy = mean(2);
  reported_ = phase;
  return report;
}

}  // namespace strait::stages
