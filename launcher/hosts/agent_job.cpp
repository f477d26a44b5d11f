#include "launcher/hosts/agent_job.h"

#include <cstdlib>

#include "framework/fields/bounded_json.h"
#include "framework/fields/json_fields.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/agent_message.h"

namespace strait::hosts {
namespace {

constexpr std::string_view kGreetingMarker = "strait-agent-here ";
constexpr std::string_view kAnswerMarker = "strait-agent-says ";
constexpr std::uint64_t kMaxClockOffset = 300;  // seconds

// Accepts the line of any build: unknown fields are skipped.
template <class T>
std::optional<T> fields_after(std::string_view marker, const std::string& line) {
  const std::optional<nlohmann::json> object = json_after(marker, line);
  if (!object || !object->is_object()) return std::nullopt;
  try {
    T read;
    fields::JsonReader fields(*object, fields::kFileStyle, std::string(marker));
    describe(fields, read);
    return read;
  } catch (const base::MessageError&) {
    return std::nullopt;
  }
}

}  // namespace

void describe(auto& f, fields::Is<AgentJob> auto& m) {
  f("run", m.run), f("run_name", m.run_name), f("generation", m.generation), f("host", m.host);
  f("host_name", m.host_name), f("build", m.build), f("public_key", m.keys.public_key);
  f("secret_key", m.keys.secret_key), f("launcher_key", m.launcher_key);
  f("endpoint", m.endpoint), f("directory", m.directory);
  f("environment", m.environment), f("address", m.address), f("devices", m.devices);
  f("ports", m.ports), f("hold", m.hold), f("up_megabits", m.up_megabits);
  f("down_megabits", m.down_megabits);
}

std::string to_text(const AgentJob& job) { return fields::to_object(job).dump(); }

AgentJob parse_agent_job(const std::string& text) {
  try {
    return fields::from_text<AgentJob>(text, "an agent's job");
  } catch (const base::MessageError& error) {
    throw base::UserError(base::ExitCode::mismatch,
                          "this is not the job of an agent of this build: {}", error.what());
  }
}

namespace fs = std::filesystem;

fs::path agent_directory(const std::string& written) {
  const char* home = std::getenv("HOME");
  if (written == "~" || written.starts_with("~/")) {
    if (home == nullptr || *home == '\0') {
      throw base::UserError(base::ExitCode::bad_input,
                            "the directory {} needs $HOME, which is not set; set it, or directory "
                            "of this host in hosts.list",
                            written);
    }
    return fs::path(home) / fs::path(written.substr(written.size() > 1 ? 2 : 1));
  }
  return fs::absolute(written);
}

fs::path host_run_directory(const fs::path& directory, const std::string& run_name,
                            const net::RunId& run) {
  return directory / "runs" / fmt::format("{}-{}", run_name, run.hex().substr(0, 8));
}

void describe(auto& f, fields::Is<AgentGreeting> auto& m) {
  f("build", m.build), f("host_name", m.host_name), f("caller", m.caller);
  f("reached", m.reached), f("clock", m.clock);
}

void describe(auto& f, fields::Is<AgentAnswer> auto& m) {
  f("pid", m.pid), f("code", m.code), f("error", m.error);
}

std::string marked_line(std::string_view marker, const nlohmann::json& value) {
  return std::string(marker) + value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::optional<nlohmann::json> json_after(std::string_view marker, const std::string& line) {
  const std::size_t at = line.find(marker);
  if (at == line.npos) return std::nullopt;
  try {
    return fields::parse_bounded_json(line.substr(at + marker.size()));
  } catch (const fields::JsonError&) {
    return std::nullopt;  // mixed with other output: not a line of the agent
  }
}

std::string to_line(const AgentGreeting& greeting) {
  return marked_line(kGreetingMarker, fields::to_object(greeting));
}

std::string to_line(const AgentAnswer& answer) {
  return marked_line(kAnswerMarker, fields::to_object(answer));
}

std::optional<AgentGreeting> greeting_from(const std::string& line) {
  if (auto greeting = fields_after<AgentGreeting>(kGreetingMarker, line)) return greeting;
  // Another build may send other fields. Its name is enough to report the mismatch.
  const std::optional<nlohmann::json> object = json_after(kGreetingMarker, line);
  if (!object || !object->is_object()) return std::nullopt;
  const auto build = object->find("build");
  if (build == object->end() || !build->is_string()) return std::nullopt;
  AgentGreeting greeting;
  greeting.build = build->get<std::string>();
  return greeting;
}

std::optional<AgentAnswer> answer_from(const std::string& line) {
  std::optional<AgentAnswer> answer = fields_after<AgentAnswer>(kAnswerMarker, line);
  if (!answer) return std::nullopt;
  // strait exits with this code, so it must be in the table and stand for a failure.
  const bool known = std::in_range<std::uint8_t>(answer->code) && answer->code != 0 &&
                     base::meaning(static_cast<base::ExitCode>(answer->code)) != nullptr;
  if (!answer->error.empty() && !known) answer->code = number(base::ExitCode::internal);
  return answer;
}

std::string clock_warning(const std::string& host, std::int64_t theirs, std::int64_t ours) {
  // A host may send any number.
  const auto [low, high] = std::minmax(theirs, ours);
  const std::uint64_t apart = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (apart <= kMaxClockOffset) return "";
  const std::string how_much =
      apart < 7200 ? fmt::format("{} minutes", apart / 60) : fmt::format("{} hours", apart / 3600);
  return fmt::format(
      "the clock of {} is {} {} this machine's; the run does not depend on it, but its logs will "
      "not agree: set it by NTP",
      host, how_much, theirs < ours ? "behind" : "ahead of");
}

}  // namespace strait::hosts
