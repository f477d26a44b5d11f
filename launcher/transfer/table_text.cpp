#include "launcher/transfer/table_text.h"

#include <nlohmann/json.hpp>

#include "framework/store/store_error.h"

namespace strait::transfer {

nlohmann::json table_to_json(const ChunkTable& table) {
  return {{"size", table.size}, {"whole", table.whole}, {"pieces", table.chunks}};
}

ChunkTable table_from_json(const nlohmann::json& json) {
  ChunkTable table{json.at("size"), json.at("whole"), json.at("pieces")};
  if (!table.well_formed()) {
    throw store::StoreError(store::StoreError::Kind::corrupt, "a table of chunks is damaged");
  }
  return table;
}

}  // namespace strait::transfer
