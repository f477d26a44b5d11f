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

// libtorch's fused AdamW over a stage's parameters. Parameters narrower than float32 have a float32
// master here, which is what learns and what checkpoints hold. Masters and moments lie flat, one
// behind the other; float32 parameters are moved there.
class AdamW {
 public:
  // Of `parameters` those are updated that have a storage of their own, which are the layout's: a
  // tied head that shares the embedding's memory is left to the embedding.
  AdamW(const std::vector<models::Parameter>& parameters, const sync::Layout& layout,
        const AdamWOptions& options);

  // `members`: how many replicas train together now.
  void update(Gradients& gradients, double learning_rate,
              sync::UpdateRule rule = sync::UpdateRule::adamw, std::size_t members = 1);

  // What a checkpoint holds of one parameter, float32.
  struct Slot {
    std::string name;
    bool owned = true;  // false: this stage's copy of a tied weight; its owner saves it
    at::Tensor master;
    at::Tensor first_moment;
    at::Tensor second_moment;
    at::Tensor updates;  // so far, as the fused kernel wants it: a float scalar
  };
  const std::vector<Slot>& slots() const { return slots_; }
  // Flat, over the layout.
  std::span<float> masters() const { return masters_.values(); }
  std::span<float> first_moments() const { return first_moments_.values(); }
  std::span<float> second_moments() const { return second_moments_.values(); }
  // After masters were loaded: copies them into the parameters they stand for.
  void publish();
  // After parameters were drawn: copies them into their masters.
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
