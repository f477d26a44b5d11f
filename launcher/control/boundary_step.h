#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace strait::control {

// What one direction of one boundary carried in one step, as its sender counts it.
struct BoundaryStep {
  std::string boundary;          // "0.0>1.0"
  std::string direction;         // "forward": activations, "backward": gradients
  std::uint64_t raw_bytes = 0;   // the values in float32
  std::uint64_t sent_bytes = 0;  // as encoded, without heads and framing
  std::optional<double> change;  // of what is sent: ‖a − m‖ / ‖a‖ over samples that came back
  std::optional<double> error;     // of what arrives: ‖error‖ / ‖a‖
  std::uint64_t cache_bytes = 0;   // remembered at this end now
  std::uint64_t hits = 0;          // rows sent as a change
  std::uint64_t first_visits = 0;  // rows sent in full and remembered
  std::uint64_t evictions = 0;     // rows forgotten to make room
  std::uint64_t resends = 0;       // rows on which the two ends differed
  bool operator==(const BoundaryStep&) const = default;

  // How many times fewer bytes than float32; 1 where nothing was sent.
  double ratio() const {
    return sent_bytes == 0 ? 1 : static_cast<double>(raw_bytes) / static_cast<double>(sent_bytes);
  }
};

// An element of `boundaries` in a line of metrics.jsonl. What nobody knows is null.
nlohmann::ordered_json to_json(const BoundaryStep& step);
// json::exception where the object is no such element.
BoundaryStep boundary_step_from(const nlohmann::json& object);

}  // namespace strait::control
