
#include <charconv>
#include <sstream>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/recipe/recipe_assembly.h"

namespace strait::recipe {
namespace {

constexpr std::string_view kSlotsWord = "slots=";

// nullopt: no number.
std::optional<std::int64_t> slots_in(std::string_view word) {
  const std::string_view digits = word.substr(kSlotsWord.size());
  std::int64_t slots = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slots);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return slots;
}

}  // namespace

RecipeValue hosts_in_hostfile(std::string_view text, const std::string& source) {
  RecipeValue hosts = RecipeValue::array();
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    RecipeValue host = {{"name", name}};
    for (std::string word; words >> word;) {
      if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;
      const auto slots = word.starts_with(kSlotsWord) ? slots_in(word) : std::nullopt;
      if (!slots) {
        throw base::UserError(
            base::ExitCode::bad_input,
            "{}:{} has \"{}\" after the host; a line of a hostfile is \"HOST\" or \"HOST slots=N\"",
            source, number, base::printable(word));
      }
      host["slots"] = *slots;
    }
    hosts.push_back(host.size() == 1 ? host.at("name") : host);
  }
  if (hosts.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} names no host; a line of a hostfile is \"HOST\" or \"HOST slots=N\"",
                          source);
  }
  return hosts;
}

}  // namespace strait::recipe
