#pragma once

#include <cstdint>

#include "framework/store/sample.h"

namespace strait::stages {

// What a pass through the pipeline is for. In training, `step` counts optimizer updates from 0; an
// evaluation carries the number of steps trained so far.
struct Phase {
  store::Step step{};
  bool training = true;
  bool operator==(const Phase&) const = default;
};

}  // namespace strait::stages
