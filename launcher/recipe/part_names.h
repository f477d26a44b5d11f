#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strait::recipe {

// The parts that recipes call by name and plugins can add to.
enum class PartKind : std::uint8_t { schedule, codec, sync_method };

// Names of a kind that this build and the loaded plugins have. Empty until a source is set.
std::vector<std::string> part_names(PartKind kind);

// Where the names come from. Recipes know names and not the rooms that have the parts (some need
// libtorch), so every program that reads recipes sets this first (plugin::offer_own_parts does).
void set_part_names(std::vector<std::string> (*source)(PartKind));

}  // namespace strait::recipe
