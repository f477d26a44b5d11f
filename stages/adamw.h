#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "framework/sync/sync_method.h"
#include "models/layer.h"
#include "stages/gradients.h"
#include "stages/stage_layout.h"

namespace strait::stages {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // on parameters of two or more dimensions
};

// libtorch's fused AdamW over a stage's parameters. A parameter narrower than float32 has a float32
// master here, which is updated and saved in checkpoints. Everything is on the parameters' device.
// Masters and moments are contiguous, in the order of the layout; float32 parameters are moved into
// that memory.
class AdamW {
 public:
  // Updates the parameters that have their own storage, which are those of the layout. A tied LM
  // head that shares the embedding's memory is updated with it.
  AdamW(const std::vector<models::Parameter>& parameters, const sync::Layout& layout,
        const AdamWOptions& options);

  // the number of replicas that now train together
  void update(Gradients& gradients, double learning_rate,
              sync::UpdateRule rule = sync::UpdateRule::adamw, std::size_t members = 1);

  // The float32 state of one parameter, as in a checkpoint.
  struct Slot {
    std::string name;
    at::Tensor master;
    at::Tensor first_moment;
    at::Tensor second_moment;
    // The number of updates so far, as a float scalar for the fused kernel. It is on the CPU, where
    // it is read without waiting for the device.
    at::Tensor updates;
  };
  const std::vector<Slot>& slots() const { return slots_; }
  // Contiguous, over the layout.
  const at::Tensor& masters() const { return masters_.whole(); }
  const at::Tensor& first_moments() const { return first_moments_.whole(); }
  const at::Tensor& second_moments() const { return second_moments_.whole(); }
  // Copies masters into their parameters, after masters were loaded.
  void publish();
  // Copies parameters into their masters, after parameters were initialized.
  void adopt();

 private:
  void update_group(Gradients& gradients, double learning_rate, bool decays);
  void update_by_moments(double learning_rate);
  void update_by_own(Gradients& gradients, double learning_rate, std::size_t members);
  double decay_of(const Slot& slot) const;

  AdamWOptions options_;
  FlatTensor masters_;
  FlatTensor first_moments_;
  FlatTensor second_moments_;
  std::vector<Slot> slots_;
  std::vector<at::Tensor> values_;        // the model's leaves, one per slot
  std::vector<std::size_t> gradient_of_;  // index into Gradients, one per slot
};

}  // namespace strait::stages
