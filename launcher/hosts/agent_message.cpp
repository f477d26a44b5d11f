#include "launcher/hosts/agent_message.h"

#include <array>
#include <string_view>

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

// In the order of the variants.
constexpr auto kAgentTypes = std::to_array<std::string_view>(
    {"agent_hello", "process_started", "process_refused", "process_ended", "log_text", "goodbye"});
constexpr auto kLauncherTypes =
    std::to_array<std::string_view>({"start_process", "end_process", "leave"});

net::Frame format(const AgentMessage& message) {
  return base::format_message(message, kAgentTypes, kHostLimits);
}
net::Frame format(const LauncherMessage& message) {
  return base::format_message(message, kLauncherTypes, kHostLimits);
}

AgentMessage parse_agent_message(std::span<const std::byte> frame) {
  return parse_message<AgentMessage>(frame, kAgentTypes, kHostLimits);
}
LauncherMessage parse_launcher_message(std::span<const std::byte> frame) {
  return parse_message<LauncherMessage>(frame, kLauncherTypes, kHostLimits);
}

}  // namespace strait::hosts
