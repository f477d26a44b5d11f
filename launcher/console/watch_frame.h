#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace strait::console {

// The size of a terminal, in characters.
struct ScreenSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// One picture of a run, no larger than the screen: headline, progress, the losses so far, what
// crosses boundaries, what the processes do. What has no room is left out from the bottom, and
// counted. Pure; throws nlohmann's exception where the status was not written by this build.
std::vector<std::string> watch_frame(const std::string& headline, const nlohmann::json& status,
                                     std::span<const double> losses, ScreenSize size);

}  // namespace strait::console
