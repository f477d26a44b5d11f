#include "launcher/recipe/part_names.h"

#include <atomic>

namespace strait::recipe {
namespace {

std::atomic<std::vector<std::string> (*)(PartKind)> part_name_source = nullptr;

}  // namespace

std::vector<std::string> part_names(PartKind kind) {
  const auto source = part_name_source.load();
  return source == nullptr ? std::vector<std::string>{} : source(kind);
}

void set_part_names(std::vector<std::string> (*source)(PartKind)) { part_name_source = source; }

}  // namespace strait::recipe
