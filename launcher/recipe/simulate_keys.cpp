
#include <array>

#include "launcher/recipe/key_kinds.h"
#include "launcher/recipe/number_keys.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {
namespace {

// ---- numbers with a unit, as in "20ms"

struct NamedUnit {
  std::string_view name;
  std::int64_t size;
};
constexpr std::array kRates = {NamedUnit{"kbit/s", 1'000}, NamedUnit{"Mbit/s", 1'000'000},
                               NamedUnit{"Gbit/s", 1'000'000'000}};
constexpr std::array kTimes = {NamedUnit{"us", 1'000}, NamedUnit{"ms", 1'000'000},
                               NamedUnit{"s", 1'000'000'000}};

std::optional<std::int64_t> parse_with_unit(const RecipeValue& value,
                                            std::span<const NamedUnit> units) {
  const auto* text = value.get_ptr<const std::string*>();
  if (text == nullptr) return std::nullopt;
  double number = 0;
  const char* const end = text->data() + text->size();
  const auto read = std::from_chars(text->data(), end, number);
  if (read.ec != std::errc() || !std::isfinite(number)) return std::nullopt;
  const char* rest = read.ptr;
  if (rest != end && *rest == ' ') ++rest;
  for (const NamedUnit& unit : units) {
    if (std::string_view(rest, static_cast<std::size_t>(end - rest)) != unit.name) continue;
    return std::llround(number * static_cast<double>(unit.size));
  }
  return std::nullopt;
}

// In the largest unit that the value reaches.
std::string format_with_unit(std::int64_t value, std::span<const NamedUnit> units) {
  const NamedUnit* best = units.data();
  for (const NamedUnit& unit : units) {
    if (value >= unit.size) best = &unit;
  }
  return fmt::format("{}{}", static_cast<double>(value) / static_cast<double>(best->size),
                     best->name);
}

std::int64_t count_of(std::int64_t value) { return value; }
std::int64_t count_of(std::chrono::nanoseconds value) { return value.count(); }

// Least, most and absent value, in the smallest unit; the absent one is not written.
struct UnitRange {
  std::int64_t least;
  std::int64_t most;
  std::int64_t absent;
};

template <auto Member>
RecipeKey with_unit(const std::string& name, std::span<const NamedUnit> units, UnitRange range,
                    const std::string& help) {
  return {name,
          fmt::format("a text from \"{}\" to \"{}\"", format_with_unit(range.least, units),
                      format_with_unit(range.most, units)),
          help,
          {},
          [=](const RecipeValue& value, Recipe& recipe) {
            const auto parsed = parse_with_unit(value, units);
            if (!parsed || *parsed < range.least || *parsed > range.most) return false;
            auto& field = recipe.hosts.simulate.*Member;
            field = std::remove_cvref_t<decltype(field)>(*parsed);
            return true;
          },
          [=](const Recipe& recipe) {
            const std::int64_t count = count_of(recipe.hosts.simulate.*Member);
            return count == range.absent ? RecipeValue()
                                         : RecipeValue(format_with_unit(count, units));
          }};
}

constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace

std::vector<RecipeKey> simulate_keys() {
  using Path = net::PathConditions;
  RecipeKey loss = key_kinds::number(
      "hosts.simulate.loss", [](auto& recipe) -> auto& { return recipe.hosts.simulate.loss; },
      {0, 0.5}, "share of the packets that are lost; TCP sends them again and slows down");
  loss.get = [](const Recipe& recipe) {
    const double share = recipe.hosts.simulate.loss;
    return share == 0 ? RecipeValue() : RecipeValue(share);
  };
  return {
      with_unit<&Path::bits_per_second>("hosts.simulate.rate", kRates, {1'000, 100 * kSecond, 0},
                                        "of every link of a local run, in each direction, as "
                                        "between hosts; absent: as fast as this machine is"),
      with_unit<&Path::delay>("hosts.simulate.delay", kTimes, {0, 10 * kSecond, 0},
                              "of every link, one way"),
      std::move(loss),
      with_unit<&Path::cut_every>("hosts.simulate.cut_every", kTimes,
                                  {100'000'000, 86'400 * kSecond, 0},
                                  "time between two cuts of a link; absent: none is cut"),
      with_unit<&Path::cut_for>("hosts.simulate.cut_for", kTimes, {0, 86'400 * kSecond, kSecond},
                                "how long a link stays cut; absent: 1s"),
      key_kinds::text(
          "hosts.simulate.link", [](auto& recipe) -> auto& { return recipe.hosts.simulate_link; },
          "a link's name, as in \"boundary 0.0>1.0\"",
          "only this link is such a one, and the plan does not expect it; absent: all are")};
}

}  // namespace strait::recipe
