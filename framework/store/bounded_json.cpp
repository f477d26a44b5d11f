#include "framework/store/bounded_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace strait::store {
namespace {

// Looks at every event before the value is kept.
class JsonGuard {
 public:
  explicit JsonGuard(const JsonLimits& limits) : limits_(limits) {}

  bool operator()(int /*depth*/, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        count();
        open_.emplace_back();
        if (open_.size() > limits_.depth) {
          throw JsonError(
              fmt::format("lists and objects are nested deeper than {}", limits_.depth));
        }
        break;
      case Event::object_end:
      case Event::array_end:
        open_.pop_back();
        break;
      case Event::key:
        count();
        measure(value);
        if (!open_.back().insert(value.get<std::string>()).second) {
          throw JsonError(fmt::format("the key {} appears twice", value.dump()));
        }
        break;
      case Event::value:
        count();
        if (value.is_string()) measure(value);
        break;
    }
    return true;
  }

 private:
  void count() {
    if (++values_ > limits_.values) {
      throw JsonError(fmt::format("it holds more than {} values", limits_.values));
    }
  }
  void measure(const nlohmann::json& value) const {
    if (value.get_ref<const std::string&>().size() > limits_.string_bytes) {
      throw JsonError(fmt::format("a string is longer than {} bytes", limits_.string_bytes));
    }
  }

  const JsonLimits& limits_;
  std::vector<std::set<std::string>> open_;  // the keys of every open object
  std::size_t values_ = 0;
};

// The library's own words without its prefix, and cut: it quotes what it read, which may be long.
std::string plain_json_reason(const std::string& words) {
  constexpr std::size_t kLongest = 200;
  const std::size_t start = words.find("syntax error");
  const std::size_t prefix = words.find("] ");
  std::string reason = start != std::string::npos    ? words.substr(start)
                       : prefix != std::string::npos ? words.substr(prefix + 2)
                                                     : words;
  if (reason.size() > kLongest) reason = reason.substr(0, kLongest) + "…";
  return reason;
}

}  // namespace

nlohmann::json parse_bounded_json(std::string_view text, const JsonLimits& limits) {
  JsonGuard guard(limits);
  try {
    return nlohmann::json::parse(text.begin(), text.end(), std::ref(guard));
  } catch (const nlohmann::json::parse_error& error) {
    throw JsonError(fmt::format("column {}: {}", error.byte, plain_json_reason(error.what())));
  } catch (const nlohmann::json::exception& error) {
    throw JsonError(plain_json_reason(error.what()));
  }
}

}  // namespace strait::store
