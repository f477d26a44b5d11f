#include "stages/link_downstream.h"

#include <fmt/format.h>

#include <utility>

#include "framework/codec/codec_error.h"

namespace strait::stages {

void LinkDownstream::give(const Phase& phase, MicroBatch micro_batch, Flow flow) {
  codec::TensorHeader head;
  head.kind = codec::Kind::forward;
  head.evaluation = !phase.training;
  head.step = phase.step;
  head.micro_batch = number(micro_batch);
  head.rows = std::move(flow.rows);
  end_.send(std::move(head), std::move(flow.values));
}

at::Tensor LinkDownstream::take_gradient(const Phase& phase, MicroBatch micro_batch) {
  return end_.take(codec::Kind::backward, phase, micro_batch).values;
}

StepReport LinkDownstream::collect(const Phase& phase) {
  StepReport report = read_report(end_.take_note("the report on the step"));
  if (report.step != phase.step) {
    throw codec::CodecError(fmt::format("a report on step {} came where step {} was expected",
                                        number(report.step), number(phase.step)));
  }
  return report;
}

void LinkDownstream::announce(const StepVerdict& verdict) { end_.send_note(to_frame(verdict)); }

}  // namespace strait::stages
