#include "stages/local_passage.h"

#include <ATen/ATen.h>

#include <utility>

namespace strait::stages {
namespace {

template <class Value>
Value take_from(std::map<MicroBatch, Value>& waiting, MicroBatch micro_batch) {
  auto found = waiting.extract(micro_batch);
  TORCH_INTERNAL_ASSERT(!found.empty(), "micro-batch ", number(micro_batch),
                        " is taken from a chunk of this stage that has not made it");
  return std::move(found.mapped());
}

}  // namespace

void LocalDownstream::give(const Phase&, MicroBatch micro_batch, Flow flow) {
  passage_->down.emplace(micro_batch, std::move(flow));
}

at::Tensor LocalDownstream::take_gradient(const Phase&, MicroBatch micro_batch) {
  return take_from(passage_->up, micro_batch);
}

StepReport LocalDownstream::collect(const Phase&) {
  TORCH_INTERNAL_ASSERT(false, "a stage asks itself for a report");
}

void LocalDownstream::announce(const StepVerdict&) {
  TORCH_INTERNAL_ASSERT(false, "a stage tells itself a verdict");
}

Flow LocalUpstream::take(const Phase&, MicroBatch micro_batch) {
  return take_from(passage_->down, micro_batch);
}

void LocalUpstream::give_gradient(const Phase&, MicroBatch micro_batch, at::Tensor gradient) {
  passage_->up.emplace(micro_batch, std::move(gradient));
}

StepVerdict LocalUpstream::settle(const StepReport&) {
  TORCH_INTERNAL_ASSERT(false, "a stage reports to itself");
}

}  // namespace strait::stages
