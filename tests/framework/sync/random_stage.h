#pragma once

#include <random>

#include "tests/framework/sync/direct_round.h"

namespace strait::sync {

inline store::Step step_number(std::int64_t number) { return static_cast<store::Step>(number); }

// A few tensors of any shape and size, vectors among them, and the tied tensors `tied`.
Layout random_layout(std::mt19937_64& random, const std::vector<PieceSpec>& tied = {});

// Normal values on all pieces; padding is zero.
std::vector<float> random_values(const Layout& layout, std::mt19937_64& random, double spread = 1);

// All replicas get the same random weights and start.
void start_at_random(DirectRound& stage, std::mt19937_64& random);

// Every slot of a replica, the trainer's four first, as float32.
std::vector<std::vector<float>> slots_of(DirectReplica& replica);
// Compares bits: NaN equals NaN, and zero differs from minus zero.
bool same_bits(const std::vector<float>& one, const std::vector<float>& other);
bool same_bits(const std::vector<std::vector<float>>& one,
               const std::vector<std::vector<float>>& other);
std::vector<float> model_of(DirectReplica& replica);

}  // namespace strait::sync
