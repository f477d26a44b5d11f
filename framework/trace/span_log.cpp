#include "framework/trace/span_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

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

// All processes with the same one share a steady clock. Empty: unknown.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// What the system's clock shows when the steady one shows 0.
Nanoseconds steady_zero() {
  using std::chrono::nanoseconds;
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(since_1970).count() - now();
}

std::string span_arguments(const Span& span) {
  std::string text;
  if (span.argument != nullptr) {
    text += fmt::format("{}:{}", span_text(span.argument), span.value);
  }
  if (span.bytes > 0) text += fmt::format(R"({}"bytes":{})", text.empty() ? "" : ",", span.bytes);
  return text.empty() ? text : fmt::format(R"(,"args":{{{}}})", text);
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

int SpanLog::add_row(std::string name) {
  const MutexLock lock(mutex_);
  int last = 0;
  for (const Row& known : rows_) last = std::max(last, known.row);
  rows_.push_back({last + kRowStep, std::move(name)});
  return rows_.back().row;
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

void SpanLog::write(const std::filesystem::path& path, std::size_t newest) const {
  std::vector<Row> rows;
  // Copied, so that recording goes on while the file is written.
  {
    const MutexLock lock(mutex_);
    rows = rows_;
  }
  std::string text =
      fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"overwritten_spans":{},"clock":{},)"
                  R"("unix_microseconds_at_zero":{}}},"traceEvents":[)",
                  overwritten(), span_text(boot_id()), microseconds(steady_zero()));
  auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})",
                 process_, span_text(process_name_));
  for (const Row& row : rows) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
                   process_, row.row, span_text(row.name));
  }
  const std::vector<Span> all = spans();
  for (const Span& span : std::span(all).last(std::min(newest, all.size()))) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{})",
                   span_text(span.name), span_text(span.category), process_, span.row,
                   microseconds(span.start), microseconds(span.end - span.start));
    if (span.message != 0) {
      fmt::format_to(out, R"(,"bind_id":{},"{}":true)", span.message,
                     span.arrives ? "flow_in" : "flow_out");
    }
    text += span_arguments(span) + '}';
  }
  text += "]}\n";
  replace_text(path, text);
}

}  // namespace strait::trace
