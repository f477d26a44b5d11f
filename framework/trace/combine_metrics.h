#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "framework/trace/metric.h"

// Combines values according to their tables (metric.h).
namespace strait::trace {

template <class V>
inline constexpr bool kIsOptional = false;
template <class V>
inline constexpr bool kIsOptional<std::optional<V>> = true;

// `count`: of the combined values. Sums start at zero.
template <class V>
void combine_value(Combine how, V& total, const V& part, double count) {
  if constexpr (kIsOptional<V>) {
    if (how == Combine::first && !total) total = part;
    if (how == Combine::latest && part) total = part;
    if (how == Combine::max) total = std::max(total.value_or(0), part.value_or(0));
  } else {
    if (how == Combine::key || how == Combine::latest) total = part;
  }
  if constexpr (std::same_as<V, bool>) {
    if (how == Combine::any) total = total || part;
  } else if constexpr (std::is_arithmetic_v<V>) {
    if (how == Combine::max) total = std::max(total, part);
    if (how == Combine::sum || how == Combine::each) total += part;
    if (how == Combine::mean) total += static_cast<V>(static_cast<double>(part) / count);
  }
}

// The values of one step of the whole run, from pairs of a process's name and its values. Computed
// metrics are set in each process (Combine::each) and in the result.
template <class Name, class S>
S combine(std::vector<std::pair<Name, S>>& processes) {
  S total;
  const auto count = static_cast<double>(processes.size());
  each_metric<S>([&]<class T, class V>(const Metric<T, V>& one) {
    if (one.member == nullptr) return;
    if constexpr (std::same_as<V, double>) {
      if (one.compute != nullptr && one.info.combine == Combine::each) {
        for (auto& [name, own] : processes) own.*one.member = one.compute(own);
      }
    }
    for (const auto& [name, own] : processes) {
      combine_value(one.info.combine, total.*one.member, own.*one.member, count);
    }
    if constexpr (std::same_as<V, double>) {
      if (one.info.combine == Combine::each && count > 0) total.*one.member /= count;
    }
  });
  each_metric<S>([&]<class T, class V>(const Metric<T, V>& one) {
    if constexpr (std::same_as<V, double>) {
      if (one.info.combine == Combine::derived) total.*one.member = one.compute(total);
    }
  });
  return total;
}

// The rows of many steps, one for each S::order().
template <class S>
class MetricTotals {
 public:
  void add(std::int64_t number, std::span<const S> step) {
    if (!first_) first_ = number;
    last_ = number;
    for (const S& row : step) {
      S& total = totals_[row.order()];
      each_metric<S>([&](const auto& one) {
        if (one.member == nullptr) return;
        combine_value(one.info.combine, total.*one.member, row.*one.member, 1);
      });
    }
  }
  std::vector<S> all() const {  // ascending by order()
    std::vector<S> rows;
    for (const auto& [order, total] : totals_) rows.push_back(total);
    return rows;
  }
  // The number of steps added; 0: none.
  std::int64_t first() const { return first_.value_or(0); }
  std::int64_t last() const { return last_; }

 private:
  std::optional<std::int64_t> first_;
  std::int64_t last_ = 0;
  std::map<decltype(std::declval<const S&>().order()), S> totals_;
};

}  // namespace strait::trace
