#include "framework/trace/merge_traces.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace strait::trace {
namespace {

constexpr double kNanosecond = 0.001;  // times are in microseconds
constexpr std::uintmax_t kMostTraceBytes = 512ULL << 20U;

using nlohmann::json;

struct Trace {
  json events;
  std::string clock;  // processes with the same one share their clock
  double zero = 0;    // what the system's clock showed at its zero, microseconds
};

bool is_message(const json& event, const char* end) {
  const auto bind = event.find("bind_id");
  return bind != event.end() && bind->is_number_unsigned() && event.value(end, false) &&
         event.contains("ts") && event.value("dur", json()).is_number() && event.contains("tid");
}

Trace read_trace(const std::filesystem::path& file) {
  json trace = json::parse(read_text(file, kMostTraceBytes), nullptr, false);
  const auto events = trace.is_object() ? trace.find("traceEvents") : trace.end();
  if (!trace.is_object() || events == trace.end() || !events->is_array()) {
    throw TraceError("cannot merge " + file.string() +
                     R"(: expected a JSON object with a list "traceEvents")");
  }
  for (const json& event : *events) {
    const bool whole = event.is_object() && event.contains("pid") &&
                       event["pid"].is_number_integer() &&
                       (!event.contains("ts") || event["ts"].is_number());
    if (!whole) {
      throw TraceError("cannot merge " + file.string() +
                       R"(: expected events with a "pid" and a "ts" that are numbers, found )" +
                       event.dump().substr(0, 80));
    }
  }
  Trace read{std::move(*events), "", 0};
  const auto other = trace.find("otherData");
  if (other == trace.end() || !other->is_object()) return read;
  if (const auto clock = other->find("clock"); clock != other->end() && clock->is_string())
    read.clock = clock->get<std::string>();
  if (const auto zero = other->find("unix_microseconds_at_zero");
      zero != other->end() && zero->is_number())
    read.zero = zero->get<double>();
  return read;
}

// Gives the processes of one file numbers that no earlier file has used.
void keep_apart(json& events, std::set<std::int64_t>& used) {
  std::map<std::int64_t, std::int64_t> renamed;
  for (json& event : events) {
    const auto process = event["pid"].get<std::int64_t>();
    auto known = renamed.find(process);
    if (known == renamed.end()) {
      std::int64_t fresh = process;
      if (used.contains(fresh)) {
        for (fresh = 0; used.contains(fresh);) ++fresh;
      }
      used.insert(fresh);
      known = renamed.emplace(process, fresh).first;
    }
    event["pid"] = known->second;
  }
}

double end_of(const json& event) { return event["ts"].get<double>() + event["dur"].get<double>(); }

// A message that both ends recorded.
struct Message {
  json* sent = nullptr;
  json* received = nullptr;
  std::size_t from = 0;  // traces, by index
  std::size_t to = 0;
};

std::vector<Message> messages_of(std::vector<Trace>& traces) {
  std::map<std::uint64_t, Message> by_number;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    for (json& event : traces[i].events) {
      const bool leaves = is_message(event, "flow_out");
      if (!leaves && !is_message(event, "flow_in")) continue;
      Message& message = by_number[event["bind_id"].get<std::uint64_t>()];
      (leaves ? message.sent : message.received) = &event;
      (leaves ? message.from : message.to) = i;
    }
  }
  std::vector<Message> messages;
  for (const auto& [number, message] : by_number) {
    if (message.sent != nullptr && message.received != nullptr) messages.push_back(message);
  }
  return messages;
}

// Converts all times to the first file's clock.
void align(std::vector<Trace>& traces, const std::vector<Message>& messages) {
  std::map<std::string, std::size_t> clocks;
  std::vector<double> guesses;
  for (const Trace& trace : traces) {
    if (!clocks.emplace(trace.clock, guesses.size()).second) continue;
    guesses.push_back(trace.zero - traces.front().zero);
  }
  std::vector<ClockedMessage> clocked;
  for (const Message& message : messages) {
    const std::size_t from = clocks.at(traces[message.from].clock);
    const std::size_t to = clocks.at(traces[message.to].clock);
    if (from == to) continue;
    clocked.push_back({from, to, (*message.sent)["ts"].get<double>(), end_of(*message.received)});
  }
  const std::vector<double> offsets = align_clocks(guesses, clocked);
  for (Trace& trace : traces) {
    const double offset = offsets[clocks.at(trace.clock)];
    for (json& event : trace.events) {
      if (offset != 0 && event.contains("ts")) event["ts"] = event["ts"].get<double>() + offset;
    }
  }
}

// The row of a link, under that of its sending thread, has the time for which each message occupies
// it. A receiver may have waited since long before; its row shows the time from the first byte on.
json link_rows(std::vector<Message> messages, const std::vector<Trace>& traces) {
  std::ranges::sort(messages, {},
                    [](const Message& one) { return (*one.sent)["ts"].get<double>(); });
  json rows = json::array();
  std::map<std::pair<std::int64_t, std::int64_t>, double> busy_until;  // by row
  for (const Message& message : messages) {
    const json& sent = *message.sent;
    json& received = *message.received;
    const double begins = sent["ts"].get<double>();
    const double ends = end_of(received);
    if (ends < begins) continue;  // left by an earlier start of the run
    const auto process = sent["pid"].get<std::int64_t>();
    const std::int64_t row = sent["tid"].get<std::int64_t>() + 1;
    const auto [busy, fresh] = busy_until.emplace(std::pair{process, row}, begins);
    if (fresh) {
      for (const json& event : traces[message.from].events) {
        if (event.value("name", "") != "thread_name" || event.value("tid", json()) != row - 1)
          continue;
        json named = event;
        named["tid"] = row;
        named["args"]["name"] = "link" + event["args"]["name"].get<std::string>().substr(4);
        rows.push_back(std::move(named));
        break;
      }
    }
    const double from = std::max(begins, busy->second);
    busy->second = std::max(ends, from);
    json on_link = {
        {"ph", "X"},  {"name", sent["name"]},      {"cat", "link"}, {"pid", process}, {"tid", row},
        {"ts", from}, {"dur", busy->second - from}};
    if (sent.contains("args")) on_link["args"] = sent["args"];
    rows.push_back(std::move(on_link));
    // Later than the sender's row, so that readers find the start of the arrow first.
    const double arrives = from + kNanosecond;
    if (received["ts"].get<double>() < arrives) {
      received["ts"] = arrives;
      received["dur"] = std::max(ends - arrives, 0.0);
    }
  }
  return rows;
}

}  // namespace

std::vector<double> align_clocks(const std::vector<double>& guesses,
                                 std::span<const ClockedMessage> messages) {
  std::map<std::pair<std::size_t, std::size_t>, double> fastest;
  for (const ClockedMessage& message : messages) {
    const double seen = message.received - message.sent;
    const auto [known, added] = fastest.emplace(std::pair{message.from, message.to}, seen);
    if (!added) known->second = std::min(known->second, seen);
  }
  std::vector<double> offsets = guesses;
  std::vector<bool> reached(guesses.size(), false);
  for (std::size_t first = 0; first < guesses.size(); ++first) {
    if (reached[first]) continue;
    reached[first] = true;
    for (std::deque<std::size_t> open = {first}; !open.empty(); open.pop_front()) {
      const std::size_t from = open.front();
      for (std::size_t to = 0; to < guesses.size(); ++to) {
        const auto there = fastest.find({from, to});
        const auto back = fastest.find({to, from});
        if (reached[to] || there == fastest.end() || back == fastest.end()) continue;
        reached[to] = true;
        offsets[to] = offsets[from] - (there->second - back->second) / 2;
        open.push_back(to);
      }
    }
  }
  return offsets;
}

void merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& path) {
  std::vector<Trace> traces;
  std::set<std::int64_t> used;
  for (const std::filesystem::path& file : files) {
    traces.push_back(read_trace(file));
    keep_apart(traces.back().events, used);
  }
  const std::vector<Message> messages = messages_of(traces);
  align(traces, messages);
  traces.push_back({link_rows(messages, traces), "", 0});
  double earliest = std::numeric_limits<double>::infinity();
  for (const Trace& trace : traces) {
    for (const json& event : trace.events) {
      if (event.contains("ts")) earliest = std::min(earliest, event["ts"].get<double>());
    }
  }
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  const char* separator = "";
  for (Trace& trace : traces) {
    for (json& event : trace.events) {
      if (event.contains("ts")) event["ts"] = event["ts"].get<double>() - earliest;
      text += separator + event.dump(-1, ' ', false, json::error_handler_t::replace);
      separator = ",\n";
    }
  }
  replace_text(path, text + "]}\n");
}

}  // namespace strait::trace
