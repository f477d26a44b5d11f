#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "framework/codec/traffic.h"

namespace strait::codec {

// What `auto` holds the error of encoded gradients against: how much a step's gradient depends on
// which rows the step happened to have. Measured on the gradient of a bias added at the boundary,
// that is on sums over tokens: a row's sum is one draw, and the spread of the draws of a step is
// the noise of their sum. One thread.
class GradientNoise {
 public:
  // Ends a step; without two rows it says nothing. Called before the first row of the next step.
  void begin_step();
  // A row [tokens, width] of any floating type, as it is before it is encoded.
  void add(const at::Tensor& row);
  // Whether a row of this step is still to be compared: one is enough.
  bool wants_comparison() const { return !compared_; }
  // That row and what its bytes decode to, float32.
  void compare(const at::Tensor& row, const at::Tensor& decoded);

  // Adds what was measured in finished steps since construction.
  void add_to(Traffic& traffic) const;

 private:
  at::Tensor sum_;          // of the step's rows, [width]
  std::int64_t rows_ = 0;   // of the step
  double row_squares_ = 0;  // of the rows' sums
  double squares_ = 0;      // of all values of the step
  bool compared_ = false;   // in the step
  Traffic measured_;
};

}  // namespace strait::codec
