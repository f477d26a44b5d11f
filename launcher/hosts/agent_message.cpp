#include "launcher/hosts/agent_message.h"

#include "framework/bytes.h"
#include "framework/fields/byte_fields.h"
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
void describe(auto& f, fields::Is<Prune> auto& m) {
  f("path", m.path), f("steps", m.steps), f("resumed", m.resumed);
}
void describe(auto& f, fields::Is<LinkWith> auto& m) {
  f("process", m.process), f("key", m.key), f("host", m.host), f("endpoint", m.endpoint);
}
void describe(auto& f, fields::Is<Done> auto& m) { f("fetched", m.fetched); }

}  // namespace strait::transfer

namespace strait::hosts {

// The longest text is the hashes of a file of 4 TiB: 128 MiB, the quarter that a writer may use.
constexpr base::MessageLimits kHostLimits{.frame_bytes = std::size_t{640} << 20,
                                          .text_bytes = std::size_t{512} << 20};
static_assert(kHostLimits.text_bytes / 4 >=
              std::size_t{transfer::ChunkTable::kMostChunks} * transfer::ChunkTable::kDigits);

void describe(auto& f, fields::Is<AgentHello> auto& m) { describe(f, m.facts); }
void describe(auto& f, fields::Is<ProcessReport> auto& m) {
  f("process", m.process), f("log", m.log), f("code", m.code), f("signal", m.signal);
}
void describe(auto& f, fields::Is<Goodbye> auto& m) { f("now", m.now); }
void describe(auto& f, fields::Is<ProcessStarted> auto& m) { f("pid", m.pid); }
void describe(auto& f, fields::Is<End> auto& m) { f("process", m.process); }
void describe(auto& f, fields::Is<StartProcess> auto& m) {
  f("process", m.process), f("job", m.job);
}

void describe(auto& f, fields::Is<ListensAt> auto& m) { f("endpoint", m.endpoint); }
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
void describe(auto& f, fields::Is<MeasureFlow> auto& m) {
  f("peer", m.peer), f("endpoints", m.endpoints), f("send_seconds", m.send_seconds);
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
void describe(auto& f, fields::Is<JoinRelay> auto& m) {
  f("token", m.token), f("relay", m.relay), f("stage", m.stage);
}

// In the order of the variants.
constexpr base::TypesOf<AgentMessage> kAgentTypes = {"agent_hello", "process", "goodbye"};
constexpr base::TypesOf<LauncherMessage> kLauncherTypes = {
    "end",        "start_process", "open_port", "try_paths", "measure_flow", "measure_compute",
    "join_relay", "stat",          "fetch",     "put",       "prune",        "link_with"};
// Not the name of the reply's type: what it must be follows from the request.
constexpr std::array<std::string_view, 2> kReplyTypes = {"failed", "reply"};

void check(const transfer::ChunkTable& table) {
  if (!table.well_formed()) {
    throw base::MessageError("control message: the chunk table is not well formed");
  }
}

net::Frame format(const AgentMessage& message) {
  return base::format_message(message, kAgentTypes, kHostLimits);
}
net::Frame format(const LauncherMessage& message) {
  return base::format_message(message, kLauncherTypes, kHostLimits);
}

AgentMessage parse_agent_message(std::span<const std::byte> message) {
  return base::parse_message<AgentMessage>(message, kAgentTypes, kHostLimits);
}
LauncherMessage parse_launcher_message(std::span<const std::byte> message) {
  auto read = base::parse_message<LauncherMessage>(message, kLauncherTypes, kHostLimits);
  if (const auto* fetch = std::get_if<transfer::Fetch>(&read)) check(fetch->table);
  return read;
}

template <class Reply>
net::Frame ReplyFrame<Reply>::format(const Either& reply) {
  return base::format_message(reply, kReplyTypes, kHostLimits);
}

template <class Reply>
auto ReplyFrame<Reply>::parse(std::span<const std::byte> message) -> Either {
  try {
    auto read = base::parse_message<Either>(message, kReplyTypes, kHostLimits);
    if constexpr (std::is_same_v<Reply, transfer::ChunkTable>) {
      if (const auto* table = std::get_if<Reply>(&read)) check(*table);
    }
    return read;
  } catch (const base::MessageError& error) {
    return Failure{base::ExitCode::internal,
                   fmt::format("its agent sent no reply to the request: {}", error.what())};
  }
}

template struct ReplyFrame<ProcessStarted>;
template struct ReplyFrame<PortOpened>;
template struct ReplyFrame<PathsTried>;
template struct ReplyFrame<FlowMeasured>;
template struct ReplyFrame<ComputeMeasured>;
template struct ReplyFrame<ListensAt>;
template struct ReplyFrame<transfer::Done>;
template struct ReplyFrame<transfer::ChunkTable>;

net::Frame with_number(std::uint64_t number, const net::Frame& message) {
  net::Frame frame;
  frame.reserve(sizeof number + message.size());
  append_value(frame, number);
  append_bytes(frame, message);
  return frame;
}

Numbered take_number(std::span<const std::byte> frame) {
  Numbered numbered;
  const std::size_t first = std::min(frame.size(), sizeof numbered.number);
  fields::BytesReader(frame.first(first), "message of an agent")("number", numbered.number);
  numbered.message = frame.subspan(first);
  return numbered;
}

}  // namespace strait::hosts
