#include "stages/chunk_ports.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "framework/codec/message.h"

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

}  // namespace strait::stages
