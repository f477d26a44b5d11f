#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>

// A metric is a member of a struct and a row of the struct's table, kMetrics. Control messages, the
// step ledger, metrics.jsonl, status.json, the console, the report and docs/metrics.md all use the
// table. The metrics of a run are in step_metrics.h and traffic_metrics.h.
namespace strait::trace {

enum class Unit : std::uint8_t {
  name,
  nats,
  number,
  rate,
  tokens,
  tokens_per_second,
  teraflops,
  seconds,
  bytes,
  rows,
  rounds,
  share,  // 0 to 1
  ratio,
  flag
};

// How several values are combined into one: the values of the processes of a step, or of the steps
// of a run.
enum class Combine : std::uint8_t {
  key,     // names what the row is about
  first,   // of the first process that has it: equal in all, or known to one
  latest,  // of the latest step that has it
  max,     // 0 if no process has it
  any,     // true if it is true in one
  sum,
  mean,
  each,        // listed by process; the mean where one number is shown
  derived,     // computed from the combined values of other metrics
  not_written  // in messages only
};

// The position of a value in the line of a step: in ascending rank; 0: not shown.
struct Label {
  int rank = 0;
  const char* before = "";
  const char* after = "";
  bool hides_zero = false;
};
// A curve in the report, in ascending rank; 0: none.
struct Chart {
  int rank = 0;
  const char* title = "";
};
// `line`: in status.json, `strait status` and `strait watch`; `watch`: not in `strait status`.
enum class Status : std::uint8_t { none, line, watch };

struct MetricInfo {
  const char* key = nullptr;  // in messages and files; null: only a column
  Unit unit = Unit::number;
  Combine combine = Combine::sum;
  const char* meaning = "";
  Label label = {};
  Status status = Status::none;
  Chart chart = {};
  const char* column = nullptr;  // its heading in tables, on the console and in reports; null: none
};

template <class S, class V>
struct Metric {
  using Compute = double (*)(const S&);
  V S::*member = nullptr;
  MetricInfo info;
  Compute compute = nullptr;  // if set: computed and not measured, so not in messages

  V value(const S& row) const {
    if constexpr (std::same_as<V, double>) {
      if (member == nullptr) return compute(row);
    }
    return row.*member;
  }
};
template <class S, class V>
constexpr Metric<S, V> metric(V S::*member, const MetricInfo& info,
                              typename Metric<S, V>::Compute compute = nullptr) {
  return {member, info, compute};
}
// A column without a member.
template <class S>
constexpr Metric<S, double> column(const MetricInfo& info, double (*compute)(const S&)) {
  return {nullptr, info, compute};
}

// The table of S: a std::tuple of its metrics in the order of the keys in files. Specialised next
// to S.
template <class S>
inline constexpr std::nullptr_t kMetrics = nullptr;

// Calls `use` with every metric of the table.
template <class S>
void each_metric(const auto& use) {
  std::apply([&](const auto&... one) { (use(one), ...); }, kMetrics<S>);
}

// The fields of S in a message, for the readers and writers of framework/fields/fields.h.
template <class S>
void describe_metrics(auto& fields, auto& row) {
  each_metric<S>([&](const auto& one) {
    if (one.compute == nullptr) fields(one.info.key, row.*one.member);
  });
}

// Empty: unknown, or not a number.
template <class V>
std::optional<double> as_number(const V& value) {
  if constexpr (std::is_arithmetic_v<V>) return static_cast<double>(value);
  return std::nullopt;
}
template <class V>
std::optional<double> as_number(const std::optional<V>& value) {
  return value ? as_number(*value) : std::nullopt;
}

}  // namespace strait::trace
