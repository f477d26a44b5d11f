#pragma once

#include <optional>

#include "framework/sync/slots.h"
#include "framework/sync/sync_settings.h"

namespace strait::sync {

// The outer optimizer of DiLoCo: gradient descent with Nesterov's momentum. Its gradient is the
// mean of the replicas' changes (reference - weights).
struct OuterStep {
  float learning_rate = 0;
  float momentum = 0;

  // The change of one value of the reference; updates its momentum.
  float change(float gradient, float& outer) const {
    outer = momentum * outer + gradient;
    return -learning_rate * (gradient + momentum * outer);
  }
  // The total change of the reference per unit of a single gradient, over all later steps.
  float gain() const { return learning_rate / (1 - momentum); }

  // Updates momentum and reference of a range.
  void make(std::span<const float> gradient, std::span<float> outer,
            std::span<float> reference) const;
};

// How far weights are from a mean: ‖w − mean‖ / ‖mean‖, summed part by part.
class MeanDistance {
 public:
  void begin(std::size_t parts) { squares_.assign(parts, {}); }
  // One value of a part. Any thread, one for each part.
  void add(std::size_t part, float weight, float mean) {
    const double apart = static_cast<double>(weight) - mean;
    squares_[part].apart += apart * apart;
    squares_[part].mean += static_cast<double>(mean) * mean;
  }
  std::optional<double> share() const;  // nullopt: of nothing

 private:
  struct Squares {
    double apart = 0;
    double mean = 0;
  };
  std::vector<Squares> squares_;
};

// The slot with the model that the outer optimizer moves.
inline constexpr const char* kReference = "reference";
// Its momentum.
inline constexpr const char* kOuter = "outer";
// What a replica trained in a range since the last round: reference - weights.
std::vector<float> change_from_reference(const Slots& slots, Range range);

// The settings, or `usual` for those that are not set. SyncError (setting) for a learning rate or a
// momentum that would not converge.
OuterStep outer_step(const SyncSettings& settings, const OuterStep& usual);

}  // namespace strait::sync
