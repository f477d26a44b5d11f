#pragma once

#include <span>

#include "framework/sync/methods.h"

namespace strait::sync {

// The outer optimizer of DiLoCo: gradient descent with Nesterov's momentum, on the mean of what
// replicas changed taken as a gradient (reference - weights).
struct OuterStep {
  float learning_rate = 0;
  float momentum = 0;

  // What one value of the reference changes by; its momentum moves on.
  float change(float gradient, float& outer) const {
    outer = momentum * outer + gradient;
    return -learning_rate * (gradient + momentum * outer);
  }
  // By how much of a gradient the reference changes in the end, with nothing behind it.
  float gain() const { return learning_rate / (1 - momentum); }
  void make(std::span<const float> gradient, std::span<float> outer,
            std::span<float> reference) const;
};

// As is set, and as is `usual` where nothing is. SyncError (setting) where momentum or learning
// rate would never settle.
OuterStep outer_step(const SyncSettings& settings, const OuterStep& usual);

}  // namespace strait::sync
