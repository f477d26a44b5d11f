#include "stages/link_upstream.h"

#include <utility>

namespace strait::stages {

Flow LinkUpstream::take(const Phase& phase, MicroBatch micro_batch) {
  Flow flow = end_.take(codec::Kind::forward, phase, micro_batch);
  if (phase.training) rows_.insert_or_assign(micro_batch, flow.rows);
  return flow;
}

void LinkUpstream::give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) {
  codec::TensorHeader head;
  head.kind = codec::Kind::backward;
  head.step = phase.step;
  head.micro_batch = number(micro_batch);
  head.rows = std::move(rows_.extract(micro_batch).mapped());
  end_.send(std::move(head), std::move(gradient));
}

StepVerdict LinkUpstream::settle(const StepReport& report) {
  end_.send_note(to_frame(report));
  return read_verdict(end_.take_note("the verdict on the step"));
}

}  // namespace strait::stages
