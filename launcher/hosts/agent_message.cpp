#include "launcher/hosts/agent_message.h"

#include "launcher/base/messages.h"

namespace strait::base {

void describe(auto& f, fields::Is<Failure> auto& m) { f("code", m.code), f("text", m.text); }

}  // namespace strait::base

namespace strait::transfer {

void describe(auto& f, fields::Is<Stat> auto& m) { f("path", m.path); }
void describe(auto& f, fields::Is<Fetch> auto& m) {
  f("table", m.table), f("runs", m.runs), f("path", m.path), f("source", m.source);
}
void describe(auto& f, fields::Is<Put> auto& m) { f("path", m.path), f("text", m.text); }
void describe(auto& f, fields::Is<Prune> auto& m) { f("path", m.path), f("steps", m.steps); }
void describe(auto& f, fields::Is<Rewind> auto& m) { f("path", m.path), f("step", m.step); }
void describe(auto& f, fields::Is<Accept> auto& m) { f("process", m.process), f("key", m.key); }
void describe(auto& f, fields::Is<Connect> auto& m) {
  f("process", m.process), f("host", m.host), f("endpoint", m.endpoint), f("key", m.key);
}
void describe(auto& f, fields::Is<ListensAt> auto& m) { f("endpoint", m.endpoint); }
void describe(auto& f, fields::Is<Done> auto& m) { f("fetched", m.fetched); }

}  // namespace strait::transfer

namespace strait::hosts {

// The longest text is the hashes of a file of 4 TiB: 128 MiB, the quarter that a writer may use.
constexpr base::MessageLimits kHostLimits{.frame_bytes = std::size_t{640} << 20,
                                          .text_bytes = std::size_t{512} << 20};
static_assert(kHostLimits.text_bytes / 4 >=
              std::size_t{transfer::ChunkTable::kMostChunks} * transfer::ChunkTable::kDigits);

void describe(auto& f, fields::Is<AgentHello> auto& m) { describe(f, m.facts); }
void describe(auto& f, fields::Is<ProcessEnded> auto& m) {
  f("process", m.process), f("code", m.code), f("signal", m.signal);
}
void describe(auto& f, fields::Is<LogText> auto& m) { f("process", m.process), f("text", m.text); }
void describe(auto& f, fields::Is<Goodbye> auto& m) { f("now", m.now); }
void describe(auto& f, fields::Is<ProcessStarted> auto& m) { f("pid", m.pid); }
void describe(auto& f, fields::Is<EndProcess> auto& m) { f("process", m.process); }
void describe(auto& /*f*/, fields::Is<Leave> auto& /*m*/) {}
void describe(auto& f, fields::Is<StartProcess> auto& m) {
  f("process", m.process), f("job", m.job);
}

void describe(auto& f, fields::Is<ProbePeer> auto& m) { f("host", m.host), f("key", m.key); }
void describe(auto& f, fields::Is<OpenPort> auto& m) {
  f("addresses", m.addresses), f("peers", m.peers), f("links", m.links);
}
void describe(auto& f, fields::Is<OpenedAddress> auto& m) {
  f("interface", m.interface), f("endpoints", m.endpoints);
}
void describe(auto& f, fields::Is<PortOpened> auto& m) {
  f("addresses", m.addresses), f("problems", m.problems);
}
void describe(auto& f, fields::Is<PathTarget> auto& m) {
  f("host", m.host), f("endpoint", m.endpoint);
}
void describe(auto& f, fields::Is<TryPaths> auto& m) {
  f("targets", m.targets), f("limit_seconds", m.limit_seconds), f("pings", m.pings);
}
void describe(auto& f, fields::Is<PathResult> auto& m) {
  f("problem", m.problem), f("seconds", m.seconds);
}
void describe(auto& f, fields::Is<PathsTried> auto& m) { f("results", m.results); }
void describe(auto& f, fields::Is<SendFlow> auto& m) {
  f("to", m.to), f("endpoints", m.endpoints), f("seconds", m.seconds);
}
void describe(auto& f, fields::Is<ReceiveFlow> auto& m) {
  f("from", m.from), f("endpoints", m.endpoints);
}
void describe(auto& f, fields::Is<FlowMeasured> auto& m) {
  f("bytes_per_second", m.bytes_per_second);
}
void describe(auto& f, fields::Is<MeasureCompute> auto& m) {
  f("model_config", m.model_config), f("rows", m.rows), f("row", m.row), f("threads", m.threads);
  f("gpu", m.gpu);
}
void describe(auto& f, fields::Is<ComputeMeasured> auto& m) {
  f("flops_per_second", m.flops_per_second), f("backward", m.backward);
  f("memory_bytes_per_second", m.memory_bytes_per_second), f("gpu_memory", m.gpu_memory);
}
void describe(auto& f, fields::Is<DialRelay> auto& m) { f("token", m.token), f("relay", m.relay); }
void describe(auto& f, fields::Is<BindRelay> auto& m) {
  f("token", m.token), f("relay", m.relay), f("stage", m.stage);
}

// In the order of the variants.
constexpr base::TypesOf<AgentMessage> kAgentTypes = {
    "agent_hello",   "process_ended",    "log_text",   "goodbye",     "failed",
    "done",          "listens",          "started",    "port_opened", "paths_tried",
    "flow_measured", "compute_measured", "chunk_table"};
constexpr base::TypesOf<LauncherMessage> kLauncherTypes = {
    "end_process",  "leave",           "start_process", "open_port",  "try_paths", "send_flow",
    "receive_flow", "measure_compute", "dial_relay",    "bind_relay", "stat",      "fetch",
    "put",          "prune",           "rewind",        "accept",     "connect"};

void check(const transfer::ChunkTable& table) {
  if (!table.well_formed()) {
    throw base::MessageError("control message: the chunk table is not well formed");
  }
}

net::Frame format(const AgentMessage& message, std::uint64_t number) {
  return base::format_message(message, kAgentTypes, kHostLimits, number);
}
net::Frame format(const LauncherMessage& message, std::uint64_t number) {
  return base::format_message(message, kLauncherTypes, kHostLimits, number);
}

Numbered<AgentMessage> parse_agent_message(std::span<const std::byte> frame) {
  Numbered<AgentMessage> read;
  read.content = base::parse_message<AgentMessage>(frame, kAgentTypes, kHostLimits, &read.number);
  if (const auto* table = std::get_if<transfer::ChunkTable>(&read.content)) check(*table);
  return read;
}
Numbered<LauncherMessage> parse_launcher_message(std::span<const std::byte> frame) {
  Numbered<LauncherMessage> read;
  read.content =
      base::parse_message<LauncherMessage>(frame, kLauncherTypes, kHostLimits, &read.number);
  if (const auto* fetch = std::get_if<transfer::Fetch>(&read.content)) check(fetch->table);
  return read;
}

}  // namespace strait::hosts
