#include "launcher/host/host_message.h"

#include "launcher/control/message_frame.h"

namespace strait::launcher {

// A job holds the whole plan.
constexpr MessageLimits kHostLimits{.frame_bytes = std::size_t{256} << 20,
                                    .text_bytes = std::size_t{192} << 20};

void describe(auto& f, Is<KeeperHello> auto& m) {
  f("host_name", m.facts.host_name), f("build", m.facts.build), f("cores", m.facts.cores);
  f("memory", m.facts.memory), f("free_disk", m.facts.free_disk), f("clock", m.facts.clock);
  f("directory", m.facts.directory), f("addresses", m.facts.addresses);
  f("address", m.facts.address), f("launcher", m.facts.launcher);
}
void describe(auto& f, Is<ProcessStarted> auto& m) { f("process", m.process), f("pid", m.pid); }
void describe(auto& f, Is<ProcessRefused> auto& m) {
  f("process", m.process), f("code", m.code), f("text", m.text);
}
void describe(auto& f, Is<ProcessEnded> auto& m) {
  f("process", m.process), f("code", m.code), f("signal", m.signal);
}
void describe(auto& f, Is<LogText> auto& m) { f("process", m.process), f("text", m.text); }
void describe(auto& f, Is<StartProcess> auto& m) { f("process", m.process), f("job", m.job); }
void describe(auto& f, Is<EndProcess> auto& m) { f("process", m.process), f("kill", m.kill); }
void describe(auto& /*f*/, Is<Leave> auto& /*m*/) {}

template <>
constexpr std::string_view kTypeName<KeeperHello> = "keeper_hello";
template <>
constexpr std::string_view kTypeName<ProcessStarted> = "process_started";
template <>
constexpr std::string_view kTypeName<ProcessRefused> = "process_refused";
template <>
constexpr std::string_view kTypeName<ProcessEnded> = "process_ended";
template <>
constexpr std::string_view kTypeName<LogText> = "log_text";
template <>
constexpr std::string_view kTypeName<StartProcess> = "start_process";
template <>
constexpr std::string_view kTypeName<EndProcess> = "end_process";
template <>
constexpr std::string_view kTypeName<Leave> = "leave";

net::Frame format(const KeeperMessage& message) { return format_message(message, kHostLimits); }
net::Frame format(const HostMessage& message) { return format_message(message, kHostLimits); }

KeeperMessage parse_keeper_message(std::span<const std::byte> frame) {
  return parse_message<KeeperMessage>(frame, kHostLimits);
}
HostMessage parse_host_message(std::span<const std::byte> frame) {
  return parse_message<HostMessage>(frame, kHostLimits);
}

}  // namespace strait::launcher
