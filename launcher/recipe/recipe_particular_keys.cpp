#include "launcher/recipe/recipe_particular_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "launcher/recipe/recipe_key_kinds.h"

namespace strait::launcher::particular_keys {

namespace {

struct SizeUnit {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array kSizeUnits = {SizeUnit{"TiB", std::int64_t{1} << 40U},
                                   SizeUnit{"GiB", std::int64_t{1} << 30U},
                                   SizeUnit{"MiB", std::int64_t{1} << 20U},
                                   SizeUnit{"KiB", std::int64_t{1} << 10U}, SizeUnit{"B", 1}};

std::optional<std::int64_t> parse_size(const RecipeValue& value) {
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

std::string format_size(std::int64_t bytes) {
  const auto unit = std::ranges::find_if(kSizeUnits, [&](const SizeUnit& candidate) {
    return bytes % candidate.bytes == 0 && bytes >= candidate.bytes;
  });
  return unit == kSizeUnits.end() ? fmt::format("{}B", bytes)
                                  : fmt::format("{}{}", bytes / unit->bytes, unit->name);
}

// A key whose value is one of a few numbers that are no range.
template <class Place>
RecipeKey listed_number(const std::string& name, Place place, std::vector<std::int64_t> numbers,
                        const std::string& allowed, const std::string& help) {
  return {name,
          allowed,
          help,
          {},
          [place, numbers = std::move(numbers)](const RecipeValue& value, Recipe& recipe) {
            const bool fits =
                value.is_number_integer() &&
                std::ranges::any_of(numbers, [&](std::int64_t number) { return value == number; });
            if (fits) place(recipe) = value.get<std::int64_t>();
            return fits;
          },
          [place](const Recipe& recipe) { return RecipeValue(place(recipe)); }};
}

template <class Place>
RecipeKey size(const std::string& name, Place place, const std::string& help) {
  return {name,
          "a size such as \"512MiB\" or \"4GiB\"",
          help,
          {},
          [place](const RecipeValue& value, Recipe& recipe) {
            const auto bytes = parse_size(value);
            place(recipe) = bytes.value_or(place(recipe));
            return bytes.has_value();
          },
          [place](const Recipe& recipe) { return RecipeValue(format_size(place(recipe))); }};
}

bool set_partition(const RecipeValue& value, Recipe& recipe) {
  Recipe::Partition partition;
  if (value == "balanced" || value == "profile") {
    partition.kind = value == "profile" ? PartitionKind::profile : PartitionKind::balanced;
  } else if (key_kinds::is_clean_text(value)) {
    const std::string_view plugin = value.get_ref<const std::string&>();
    constexpr std::string_view kPrefix = "plugin:";
    if (!plugin.starts_with(kPrefix) || plugin.size() == kPrefix.size()) {
      return false;
    }
    partition.kind = PartitionKind::plugin;
    partition.plugin = plugin.substr(kPrefix.size());
  } else {
    if (!value.is_array() || value.empty() || value.size() > 4096) {
      return false;
    }
    constexpr key_kinds::IntegerRange kLayers{0, 1'000'000};
    partition.kind = PartitionKind::ranges;
    for (const auto& range : value) {
      if (!range.is_array() || range.size() != 2 || !kLayers.holds(range[0]) ||
          !kLayers.holds(range[1]) || range[0] > range[1]) {
        return false;
      }
      partition.ranges.emplace_back(range[0].get<int>(), range[1].get<int>());
    }
  }
  recipe.pipeline.partition = partition;
  return true;
}

RecipeValue get_partition(const Recipe& recipe) {
  const auto& partition = recipe.pipeline.partition;
  switch (partition.kind) {
    case PartitionKind::ranges:
      return partition.ranges;
    case PartitionKind::plugin:
      return "plugin:" + partition.plugin;
    default:
      return name_of(partition.kind);
  }
}

bool set_ports(const RecipeValue& value, Recipe& recipe) {
  const auto* written = value.get_ptr<const std::string*>();
  if (written == nullptr) {
    return false;
  }
  std::pair<int, int> ports;
  const char* const end = written->data() + written->size();
  const auto first = std::from_chars(written->data(), end, ports.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') {
    return false;
  }
  const auto last = std::from_chars(first.ptr + 1, end, ports.second);
  if (last.ec != std::errc() || last.ptr != end || ports.first < 1 || ports.second > 65535 ||
      ports.first > ports.second) {
    return false;
  }
  recipe.hosts.ports = ports;
  return true;
}

}  // namespace

RecipeKey run_name() {
  auto key = key_kinds::text(
      "name", [](auto& recipe) -> auto& { return recipe.name; },
      "at most 100 letters, digits, \".\", \"_\" or \"-\", the first a letter or digit",
      "the run directory is runs/<name>/; by default the recipe's file name");
  key.set = [set = std::move(key.set)](const RecipeValue& value, Recipe& recipe) {
    const auto* name = value.get_ptr<const std::string*>();
    const auto letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    };
    return name != nullptr && !name->empty() && name->size() <= 100 && letter(name->front()) &&
           std::ranges::all_of(
               *name, [&](char c) { return letter(c) || c == '.' || c == '_' || c == '-'; }) &&
           set(value, recipe);
  };
  return key;
}

RecipeKey partition() {
  return {"pipeline.partition",
          "\"balanced\", \"profile\", \"plugin:PATH\", or the first and last layer of each stage "
          "as in [[0, 5], [6, 11]]",
          "which layers are whose",
          {"balanced", "profile"},
          set_partition,
          get_partition};
}

RecipeKey betas() {
  return {"train.betas",
          "two numbers from 0 to 0.999999, as in [0.9, 0.95]",
          "of AdamW",
          {},
          [](const RecipeValue& value, Recipe& recipe) {
            constexpr key_kinds::NumberRange kBeta{0, 0.999999};
            if (!value.is_array() || value.size() != 2 || !kBeta.holds(value[0]) ||
                !kBeta.holds(value[1])) {
              return false;
            }
            recipe.train.betas = {value[0].get<double>(), value[1].get<double>()};
            return true;
          },
          [](const Recipe& recipe) { return RecipeValue(recipe.train.betas); }};
}

RecipeKey cache() {
  return size(
      "codec.cache", [](auto& recipe) -> auto& { return recipe.codec.cache; },
      "memory per process in which delta remembers samples");
}

RecipeKey cache_disk() {
  return size(
      "codec.cache_disk", [](auto& recipe) -> auto& { return recipe.codec.cache_disk; },
      "disk per process for what that memory does not hold; \"0B\": none");
}

RecipeKey first_bits() {
  return listed_number(
      "codec.first_bits", [](auto& recipe) -> auto& { return recipe.codec.first_bits; },
      {2, 3, 4, 5, 6, 7, 8, 16}, "an integer from 2 to 8, or 16 for bfloat16",
      "of delta on the first visit of a sample");
}

RecipeKey group() {
  return listed_number(
      "codec.group", [](auto& recipe) -> auto& { return recipe.codec.group; }, {32, 64, 128},
      "32, 64 or 128", "values that share a scale, in fixed and delta");
}

RecipeKey ports() {
  return {"hosts.ports",
          "two ports from 1 to 65535, as in \"47000-47099\"",
          "that stages may bind; absent: any free one",
          {},
          set_ports,
          [](const Recipe& recipe) {
            const auto [first, last] = recipe.hosts.ports;
            return first == 0 ? RecipeValue() : RecipeValue(fmt::format("{}-{}", first, last));
          }};
}

}  // namespace strait::launcher::particular_keys
