#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/codec/choice.h"
#include "framework/codec/traffic.h"
#include "framework/store/sample.h"

namespace strait::stages {

// What passed one direction of one boundary in training, as one end saw it.
struct BoundaryTraffic {
  enum class Direction : std::uint8_t { forward, backward };  // activations, gradients
  std::string boundary;                                       // BoundaryOptions::name
  Direction direction = Direction::forward;
  bool sent = false;  // by this end; otherwise received
  codec::Traffic traffic;
  bool operator==(const BoundaryTraffic&) const = default;
};

// `auto` changed the way of a direction that this end sends.
struct CodecSwitch {
  std::string boundary;
  BoundaryTraffic::Direction direction = BoundaryTraffic::Direction::forward;
  store::Step step{};  // the first that goes the new way
  codec::Decision decision;
};

// What came on top of `before`, a reading of the same ends.
std::vector<BoundaryTraffic> difference(std::span<const BoundaryTraffic> after,
                                        std::span<const BoundaryTraffic> before);

}  // namespace strait::stages
