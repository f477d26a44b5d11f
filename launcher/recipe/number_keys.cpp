#include "launcher/recipe/number_keys.h"

#include <array>

namespace strait::recipe {
namespace {

struct SizeUnit {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array kSizeUnits = {SizeUnit{"TiB", std::int64_t{1} << 40U},
                                   SizeUnit{"GiB", std::int64_t{1} << 30U},
                                   SizeUnit{"MiB", std::int64_t{1} << 20U},
                                   SizeUnit{"KiB", std::int64_t{1} << 10U}, SizeUnit{"B", 1}};

}  // namespace

std::optional<std::int64_t> parse_byte_size(const RecipeValue& value) {
  if (constexpr key_kinds::IntegerRange kBytes{0, std::int64_t{1} << 50U}; kBytes.holds(value)) {
    return value.get<std::int64_t>();
  }
  const auto* written = value.get_ptr<const std::string*>();
  if (written == nullptr) {
    return std::nullopt;
  }
  std::int64_t count = 0;
  const char* const end = written->data() + written->size();
  const auto [rest, error] = std::from_chars(written->data(), end, count);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const auto known = std::ranges::find(kSizeUnits, unit, &SizeUnit::name);
  if (error != std::errc() || known == kSizeUnits.end() || count < 0 ||
      count > (std::int64_t{1} << 50U) / known->bytes) {
    return std::nullopt;
  }
  return count * known->bytes;
}

std::string format_byte_size(std::int64_t bytes) {
  const auto unit = std::ranges::find_if(kSizeUnits, [&](const SizeUnit& candidate) {
    return bytes % candidate.bytes == 0 && bytes >= candidate.bytes;
  });
  return unit == kSizeUnits.end() ? fmt::format("{}B", bytes)
                                  : fmt::format("{}{}", bytes / unit->bytes, unit->name);
}

}  // namespace strait::recipe
