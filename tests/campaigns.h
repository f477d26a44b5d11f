#pragma once

#include <cstdlib>

namespace strait {

// Whether tests run every combination (`./strait test --all`), and not a choice of them.
inline bool campaigns() { return std::getenv("STRAIT_CAMPAIGNS") != nullptr; }

}  // namespace strait
