#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strait::launcher {

// The parts that recipes call by name and plugins can add to.
enum class PartKind : std::uint8_t { schedule, codec, sync_method };

// What there is of a kind: of this build, then of the plugins that are loaded. Defined in
// launcher/plugin, which knows the rooms that have them; recipes know the names alone.
std::vector<std::string> part_names(PartKind kind);

}  // namespace strait::launcher
