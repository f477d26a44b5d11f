#include "framework/trace/merge_traces.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "framework/trace/text_file.h"

namespace strait::trace {
namespace {

constexpr std::uintmax_t kMostTraceBytes = 512ULL << 20U;

using nlohmann::json;

json read_trace(const std::filesystem::path& file) {
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
  return std::move(*events);
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

}  // namespace

void merge_traces(std::span<const std::filesystem::path> files, const std::filesystem::path& path) {
  std::vector<json> traces;
  std::set<std::int64_t> used;
  double earliest = std::numeric_limits<double>::infinity();
  for (const std::filesystem::path& file : files) {
    traces.push_back(read_trace(file));
    keep_apart(traces.back(), used);
    for (const json& event : traces.back()) {
      if (event.contains("ts")) earliest = std::min(earliest, event["ts"].get<double>());
    }
  }
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  const char* separator = "";
  for (json& trace : traces) {
    for (json& event : trace) {
      if (event.contains("ts")) event["ts"] = event["ts"].get<double>() - earliest;
      text += separator + event.dump(-1, ' ', false, json::error_handler_t::replace);
      separator = ",\n";
    }
  }
  replace_text(path, text + "]}\n");
}

}  // namespace strait::trace
