#pragma once

#include <cstdlib>

namespace strait {

// Whether tests run all that they choose a part of otherwise (`./strait test --all` sets it).
inline bool campaigns() { return std::getenv("STRAIT_CAMPAIGNS") != nullptr; }

}  // namespace strait
