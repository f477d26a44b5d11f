#include "launcher/hosts/agent_message.h"

#include <type_traits>

#include "launcher/base/messages.h"
#include "launcher/hosts/host_facts_fields.h"

namespace strait::hosts {

// A job holds the whole plan.
constexpr base::MessageLimits kHostLimits{.frame_bytes = std::size_t{256} << 20,
                                          .text_bytes = std::size_t{192} << 20};

void describe(auto& f, fields::Is<AgentHello> auto& m) { describe(f, m.facts); }
void describe(auto& f, fields::Is<ProcessStarted> auto& m) {
  f("process", m.process), f("pid", m.pid);
}
void describe(auto& f, fields::Is<ProcessRefused> auto& m) {
  f("process", m.process), f("code", m.code), f("text", m.text);
}
void describe(auto& f, fields::Is<ProcessEnded> auto& m) {
  f("process", m.process), f("code", m.code), f("signal", m.signal);
}
void describe(auto& f, fields::Is<LogText> auto& m) { f("process", m.process), f("text", m.text); }
void describe(auto& f, fields::Is<Goodbye> auto& m) { f("now", m.now); }
void describe(auto& f, fields::Is<StartProcess> auto& m) {
  f("process", m.process), f("job", m.job);
}
void describe(auto& f, fields::Is<EndProcess> auto& m) {
  f("process", m.process), f("kill", m.kill);
}
void describe(auto& /*f*/, fields::Is<Leave> auto& /*m*/) {}

constexpr std::string_view type_name(std::type_identity<AgentHello> /*type*/) {
  return "agent_hello";
}
constexpr std::string_view type_name(std::type_identity<ProcessStarted> /*type*/) {
  return "process_started";
}
constexpr std::string_view type_name(std::type_identity<ProcessRefused> /*type*/) {
  return "process_refused";
}
constexpr std::string_view type_name(std::type_identity<ProcessEnded> /*type*/) {
  return "process_ended";
}
constexpr std::string_view type_name(std::type_identity<LogText> /*type*/) { return "log_text"; }
constexpr std::string_view type_name(std::type_identity<Goodbye> /*type*/) { return "goodbye"; }
constexpr std::string_view type_name(std::type_identity<StartProcess> /*type*/) {
  return "start_process";
}
constexpr std::string_view type_name(std::type_identity<EndProcess> /*type*/) {
  return "end_process";
}
constexpr std::string_view type_name(std::type_identity<Leave> /*type*/) { return "leave"; }

net::Frame format(const AgentMessage& message) {
  return base::format_message(message, kHostLimits);
}
net::Frame format(const LauncherMessage& message) {
  return base::format_message(message, kHostLimits);
}

AgentMessage parse_agent_message(std::span<const std::byte> frame) {
  return parse_message<AgentMessage>(frame, kHostLimits);
}
LauncherMessage parse_launcher_message(std::span<const std::byte> frame) {
  return parse_message<LauncherMessage>(frame, kHostLimits);
}

}  // namespace strait::hosts
