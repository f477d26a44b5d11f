#include "launcher/hosts/agent_greeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/store/bounded_json.h"
#include "launcher/base/errors.h"

namespace strait::hosts {
namespace {

using nlohmann::json;

constexpr std::string_view kGreetingMarker = "strait-agent-here ";
constexpr std::string_view kAnswerMarker = "strait-agent-says ";
constexpr std::uint64_t kMaxClockOffset = 300;  // seconds

// The JSON library converts any number to any type of number. Absent is fine here.
bool is_whole(const json& fields, const char* key) {
  const auto found = fields.find(key);
  return found == fields.end() || found->is_number_integer();
}

}  // namespace

std::string marked_line(std::string_view marker, const json& value) {
  return std::string(marker) + value.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

std::optional<json> json_after(std::string_view marker, const std::string& line) {
  const std::size_t at = line.find(marker);
  if (at == line.npos) return std::nullopt;
  try {
    return store::parse_bounded_json(line.substr(at + marker.size()));
  } catch (const store::JsonError&) {
    return std::nullopt;  // mixed with other output: not a line of the agent
  }
}

std::string to_line(const AgentGreeting& greeting) {
  return marked_line(kGreetingMarker, {{"build", greeting.build},
                                       {"host_name", greeting.host_name},
                                       {"caller", greeting.caller},
                                       {"reached", greeting.reached},
                                       {"clock", greeting.clock}});
}

std::string to_line(const AgentAnswer& answer) {
  return marked_line(kAnswerMarker,
                     {{"pid", answer.pid}, {"code", answer.code}, {"error", answer.error}});
}

std::optional<AgentGreeting> greeting_from(const std::string& line) {
  const std::optional<json> fields = json_after(kGreetingMarker, line);
  if (!fields || !fields->is_object() || !is_whole(*fields, "clock")) return std::nullopt;
  // Only the fields that every build sends are required: a mismatch of builds must be reported.
  try {
    return AgentGreeting{fields->at("build"), fields->value("host_name", ""),
                         fields->value("caller", ""), fields->value("reached", ""),
                         fields->value("clock", std::int64_t{0})};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::optional<AgentAnswer> answer_from(const std::string& line) {
  const std::optional<json> fields = json_after(kAnswerMarker, line);
  if (!fields || !fields->is_object()) return std::nullopt;
  if (!is_whole(*fields, "pid") || !is_whole(*fields, "code")) return std::nullopt;
  try {
    AgentAnswer answer{fields->at("pid"), fields->at("code"), fields->at("error")};
    // strait ends with it, so it is one of the table, and of a failure.
    const base::ExitCode code{answer.code};
    const bool known = code != base::ExitCode::done && base::meaning(code) != nullptr;
    if (!answer.error.empty() && !known) answer.code = number(base::ExitCode::internal);
    return answer;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string clock_warning(const std::string& host, std::int64_t theirs, std::int64_t ours) {
  // What a host says may be any number.
  const auto [low, high] = std::minmax(theirs, ours);
  const std::uint64_t apart = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (apart <= kMaxClockOffset) return "";
  const std::string how_much =
      apart < 7200 ? fmt::format("{} minutes", apart / 60) : fmt::format("{} hours", apart / 3600);
  return fmt::format(
      "the clock of {} is {} {} this machine's; the run does not depend on it, but its logs "
      "will not agree: "
      "set it by NTP",
      host, how_much, theirs < ours ? "behind" : "ahead of");
}

}  // namespace strait::hosts
