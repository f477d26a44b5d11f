#pragma once

#include <map>
#include <memory>

#include "stages/ports.h"

namespace strait::stages {

// What is on its way between two chunks that follow each other on one stage. Nothing is encoded,
// sent or waited for: the action list has made it before it is taken.
struct LocalPassage {
  std::map<MicroBatch, Flow> down;
  std::map<MicroBatch, at::Tensor> up;
};

// The lower end of the upper chunk. Nobody asks it for reports: there is no other stage behind it.
class LocalDownstream final : public Downstream {
 public:
  explicit LocalDownstream(std::shared_ptr<LocalPassage> passage) : passage_(std::move(passage)) {}

  void give(const Phase& phase, MicroBatch micro_batch, Flow flow) override;
  at::Tensor take_gradient(const Phase& phase, MicroBatch micro_batch) override;
  StepReport collect(const Phase& phase) override;
  void announce(const StepVerdict& verdict) override;

 private:
  std::shared_ptr<LocalPassage> passage_;
};

// The upper end of the lower chunk.
class LocalUpstream final : public Upstream {
 public:
  explicit LocalUpstream(std::shared_ptr<LocalPassage> passage) : passage_(std::move(passage)) {}

  Flow take(const Phase& phase, MicroBatch micro_batch) override;
  void give_gradient(const Phase& phase, MicroBatch micro_batch, at::Tensor gradient) override;
  StepVerdict settle(const StepReport& report) override;

 private:
  std::shared_ptr<LocalPassage> passage_;
};

}  // namespace strait::stages
