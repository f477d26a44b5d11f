#pragma once

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "models/model_description.h"

namespace strait::stages {

// A cut that cannot be: fewer layers than stages, a layer missing or twice.
class PartitionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Cuts a model into contiguous stages. The numbers a user writes count transformer blocks as the
// weight files do (h.0, h.1, …); the embedding goes with the first block and the head with the
// last.

// The cut whose slowest stage is as fast as can be, by floating-point operations per token; among
// equals the one that gives later stages less. Pure.
std::vector<models::LayerRange> balanced_partition(const models::ModelDescription& model,
                                                   std::int64_t stages);

// The user's own: first and last block of every stage, inclusive.
std::vector<models::LayerRange> explicit_partition(const models::ModelDescription& model,
                                                   const std::vector<std::pair<int, int>>& blocks);

}  // namespace strait::stages
