#include "launcher/reach/reach_message.h"

#include "launcher/control/message_frame.h"

namespace strait::launcher {

// A model's description is the longest text.
constexpr MessageLimits kReachLimits{.frame_bytes = std::size_t{16} << 20,
                                     .text_bytes = std::size_t{4} << 20};

void describe(auto& f, Is<OpenPort> auto& m) { f("token", m.token), f("addresses", m.addresses); }
void describe(auto& f, Is<PathTarget> auto& m) { f("host", m.host), f("place", m.place); }
void describe(auto& f, Is<TryPaths> auto& m) {
  f("token", m.token), f("targets", m.targets), f("limit_seconds", m.limit_seconds);
}
void describe(auto& f, Is<MeasureTrip> auto& m) {
  f("token", m.token), f("place", m.place), f("count", m.count);
}
void describe(auto& f, Is<MeasureFlow> auto& m) {
  f("token", m.token), f("place", m.place), f("from_there", m.from_there);
  f("connections", m.connections), f("seconds", m.seconds);
}
void describe(auto& f, Is<MeasureCompute> auto& m) {
  f("model_config", m.model_config), f("rows", m.rows), f("row", m.row), f("threads", m.threads);
}
void describe(auto& f, Is<DialRelay> auto& m) { f("token", m.token), f("relay", m.relay); }
void describe(auto& f, Is<BindRelay> auto& m) {
  f("token", m.token), f("relay", m.relay), f("stage", m.stage);
}
void describe(auto& /*f*/, Is<ClosePort> auto& /*m*/) {}
void describe(auto& f, Is<PortOpened> auto& m) {
  f("places", m.places), f("wires", m.wires), f("troubles", m.troubles);
}
void describe(auto& f, Is<PathTried> auto& m) { f("trouble", m.trouble), f("seconds", m.seconds); }
void describe(auto& f, Is<PathsTried> auto& m) { f("results", m.results); }
void describe(auto& f, Is<TripMeasured> auto& m) { f("seconds", m.seconds); }
void describe(auto& f, Is<FlowMeasured> auto& m) { f("bytes_per_second", m.bytes_per_second); }
void describe(auto& f, Is<ComputeMeasured> auto& m) {
  f("flops_per_second", m.flops_per_second), f("backward", m.backward);
  f("memory_bytes_per_second", m.memory_bytes_per_second);
}
void describe(auto& f, Is<RelayDialled> auto& m) { f("place", m.place); }
void describe(auto& f, Is<OrderFailed> auto& m) { f("text", m.text); }

template <>
constexpr std::string_view kTypeName<OpenPort> = "open_port";
template <>
constexpr std::string_view kTypeName<TryPaths> = "try_paths";
template <>
constexpr std::string_view kTypeName<MeasureTrip> = "measure_trip";
template <>
constexpr std::string_view kTypeName<MeasureFlow> = "measure_flow";
template <>
constexpr std::string_view kTypeName<MeasureCompute> = "measure_compute";
template <>
constexpr std::string_view kTypeName<DialRelay> = "dial_relay";
template <>
constexpr std::string_view kTypeName<BindRelay> = "bind_relay";
template <>
constexpr std::string_view kTypeName<ClosePort> = "close_port";
template <>
constexpr std::string_view kTypeName<PortOpened> = "port_opened";
template <>
constexpr std::string_view kTypeName<PathsTried> = "paths_tried";
template <>
constexpr std::string_view kTypeName<TripMeasured> = "trip_measured";
template <>
constexpr std::string_view kTypeName<FlowMeasured> = "flow_measured";
template <>
constexpr std::string_view kTypeName<ComputeMeasured> = "compute_measured";
template <>
constexpr std::string_view kTypeName<RelayDialled> = "relay_dialled";
template <>
constexpr std::string_view kTypeName<OrderFailed> = "order_failed";

net::Frame format(const ReachOrder& order) { return format_message(order, kReachLimits); }
net::Frame format(const ReachAnswer& answer) { return format_message(answer, kReachLimits); }

ReachOrder parse_reach_order(std::span<const std::byte> frame) {
  return parse_message<ReachOrder>(frame, kReachLimits);
}
ReachAnswer parse_reach_answer(std::span<const std::byte> frame) {
  return parse_message<ReachAnswer>(frame, kReachLimits);
}

}  // namespace strait::launcher
