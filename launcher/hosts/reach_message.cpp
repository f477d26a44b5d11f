#include "launcher/hosts/reach_message.h"

#include <array>
#include <string_view>

#include "launcher/base/messages.h"

namespace strait::hosts {

// A model's description is the longest text.
constexpr base::MessageLimits kReachLimits{.frame_bytes = std::size_t{16} << 20,
                                           .text_bytes = std::size_t{4} << 20};

void describe(auto& f, fields::Is<ProbePeer> auto& m) { f("host", m.host), f("key", m.key); }
void describe(auto& f, fields::Is<OpenPort> auto& m) {
  f("addresses", m.addresses), f("peers", m.peers), f("links", m.links);
}
void describe(auto& f, fields::Is<PathTarget> auto& m) {
  f("host", m.host), f("endpoint", m.endpoint);
}
void describe(auto& f, fields::Is<TryPaths> auto& m) {
  f("targets", m.targets), f("limit_seconds", m.limit_seconds);
}
void describe(auto& f, fields::Is<MeasureRoundTrip> auto& m) {
  f("target", m.target), f("count", m.count);
}
void describe(auto& f, fields::Is<SendFlow> auto& m) {
  f("to", m.to), f("endpoints", m.endpoints), f("seconds", m.seconds);
}
void describe(auto& f, fields::Is<ReceiveFlow> auto& m) {
  f("from", m.from), f("endpoints", m.endpoints);
}
void describe(auto& f, fields::Is<MeasureCompute> auto& m) {
  f("model_config", m.model_config), f("rows", m.rows), f("row", m.row), f("threads", m.threads);
  f("gpu", m.gpu);
}
void describe(auto& f, fields::Is<DialRelay> auto& m) { f("token", m.token), f("relay", m.relay); }
void describe(auto& f, fields::Is<BindRelay> auto& m) {
  f("token", m.token), f("relay", m.relay), f("stage", m.stage);
}
void describe(auto& /*f*/, fields::Is<ClosePort> auto& /*m*/) {}
void describe(auto& f, fields::Is<OpenedAddress> auto& m) {
  f("interface", m.interface), f("endpoints", m.endpoints);
}
void describe(auto& f, fields::Is<PortOpened> auto& m) {
  f("addresses", m.addresses), f("problems", m.problems);
}
void describe(auto& f, fields::Is<PathResult> auto& m) {
  f("problem", m.problem), f("seconds", m.seconds);
}
void describe(auto& f, fields::Is<PathsTried> auto& m) { f("results", m.results); }
void describe(auto& f, fields::Is<RoundTripMeasured> auto& m) { f("seconds", m.seconds); }
void describe(auto& /*f*/, fields::Is<FlowSent> auto& /*m*/) {}
void describe(auto& f, fields::Is<FlowMeasured> auto& m) {
  f("bytes_per_second", m.bytes_per_second);
}
void describe(auto& f, fields::Is<ComputeMeasured> auto& m) {
  f("flops_per_second", m.flops_per_second), f("backward", m.backward);
  f("memory_bytes_per_second", m.memory_bytes_per_second), f("gpu_memory", m.gpu_memory);
}
void describe(auto& f, fields::Is<RelayDialled> auto& m) { f("endpoint", m.endpoint); }
void describe(auto& f, fields::Is<CommandFailed> auto& m) { f("text", m.text); }

// In the order of the variants.
constexpr auto kCommandTypes = std::to_array<std::string_view>(
    {"open_port", "probe_paths", "measure_trip", "send_flow", "receive_flow", "measure_compute",
     "dial_relay", "bind_relay", "close_port"});
constexpr auto kAnswerTypes = std::to_array<std::string_view>(
    {"port_opened", "paths_tried", "trip_measured", "flow_sent", "flow_measured",
     "compute_measured", "relay_dialled", "command_failed"});

net::Frame format(const ReachCommand& command) {
  return base::format_message(command, kCommandTypes, kReachLimits);
}
net::Frame format(const ReachAnswer& answer) {
  return base::format_message(answer, kAnswerTypes, kReachLimits);
}

ReachCommand parse_reach_command(std::span<const std::byte> frame) {
  return parse_message<ReachCommand>(frame, kCommandTypes, kReachLimits);
}
ReachAnswer parse_reach_answer(std::span<const std::byte> frame) {
  return parse_message<ReachAnswer>(frame, kAnswerTypes, kReachLimits);
}

}  // namespace strait::hosts
