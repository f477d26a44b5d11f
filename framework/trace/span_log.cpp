#include "framework/trace/span_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/trace/trace_file.h"

namespace strait::trace {
namespace {

std::string span_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The format counts microseconds. A double would lose the last digits on a machine that is up for a
// year.
std::string microseconds(Nanoseconds time) {
  return fmt::format("{}{}.{:03}", time < 0 ? "-" : "", std::abs(time / 1000),
                     std::abs(time % 1000));
}

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

Nanoseconds now() {
  using std::chrono::nanoseconds;
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(since_start).count();
}

SpanLog::SpanLog(std::string process_name, int process, std::size_t capacity)
    : process_name_(std::move(process_name)),
      process_(process),
      capacity_(std::max<std::size_t>(capacity, 1)) {
  const MutexLock lock(mutex_);
  // All at once: record() is called in the hot path and must not allocate.
  ring_.reserve(capacity_);
}

void SpanLog::name_row(int row, std::string name) {
  const MutexLock lock(mutex_);
  for (Row& known : rows_) {
    if (known.row == row) {
      known.name = std::move(name);
      return;
    }
  }
  rows_.push_back({row, std::move(name)});
}

void SpanLog::record(const Span& span) {
  const MutexLock lock(mutex_);
  if (ring_.size() < capacity_) {
    ring_.push_back(span);
  } else {
    ring_[recorded_ % capacity_] = span;
  }
  ++recorded_;
}

std::vector<Span> SpanLog::spans() const {
  const MutexLock lock(mutex_);
  std::vector<Span> ordered = ring_;
  if (recorded_ > capacity_) {
    const auto oldest = static_cast<std::ptrdiff_t>(recorded_ % capacity_);
    std::rotate(ordered.begin(), ordered.begin() + oldest, ordered.end());
  }
  return ordered;
}

std::uint64_t SpanLog::overwritten() const {
  const MutexLock lock(mutex_);
  return recorded_ - ring_.size();
}

void SpanLog::write(const std::filesystem::path& path) const {
  std::vector<Row> rows;
  // Copied, so that recording goes on while the file is written.
  {
    const MutexLock lock(mutex_);
    rows = rows_;
  }
  // Written by hand: a DOM of 65,536 spans would take several times the memory of the text.
  std::string text = fmt::format(
      R"({{"displayTimeUnit":"ms","otherData":{{"overwritten_spans":{}}},"traceEvents":[)",
      overwritten());
  auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})",
                 process_, span_text(process_name_));
  for (const Row& row : rows) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
                   process_, row.row, span_text(row.name));
  }
  for (const Span& span : spans()) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{})",
                   span_text(span.name), span_text(span.category), process_, span.row,
                   microseconds(span.start), microseconds(span.end - span.start));
    if (span.argument != nullptr) {
      fmt::format_to(out, R"(,"args":{{{}:{}}})", span_text(span.argument), span.value);
    }
    text += '}';
  }
  text += "]}\n";
  replace_text(path, text);
}

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
