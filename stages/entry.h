#pragma once

#include <functional>

#include "framework/sync/membership.h"

namespace strait::stages {

// A replica that comes to others which train already: as whom, and who wants to know whenever a
// part of what they tell it is here.
struct Entry {
  sync::Rejoin arrival;
  std::function<void()> moved;
};

}  // namespace strait::stages
