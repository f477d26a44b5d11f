#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "launcher/transfer/chunk_table.h"

namespace strait::transfer {

constexpr std::uint64_t kMostTableText = std::uint64_t{256} << 20;

// A table as it lies on disk.
nlohmann::json table_to_json(const ChunkTable& table);
ChunkTable table_from_json(const nlohmann::json& json);  // StoreError (corrupt): it is none

}  // namespace strait::transfer
