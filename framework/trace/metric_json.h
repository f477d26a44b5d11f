#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "framework/trace/metric.h"

// Metrics as keys of JSON objects, in the order of their tables (metric.h). Unknown values are
// null.
namespace strait::trace {

template <class V>
nlohmann::ordered_json json_value(const V& value) {
  return value;
}
template <class V>
nlohmann::ordered_json json_value(const std::optional<V>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

// Appends the metrics of `row`. `processes`: pairs of a process's name and its metrics. Metrics
// combined by process become an object of them.
template <class S, class Name>
void append_metrics(nlohmann::ordered_json& object, const S& row,
                    const std::vector<std::pair<Name, S>>& processes) {
  each_metric<S>([&](const auto& one) {
    if (one.info.key == nullptr || one.info.combine == Combine::not_written) return;
    if (one.info.combine != Combine::each) {
      object[one.info.key] = json_value(row.*one.member);
      return;
    }
    nlohmann::ordered_json& list = object[one.info.key] = nlohmann::ordered_json::object();
    for (const auto& [process, own] : processes) {
      list[process.text()] = json_value(own.*one.member);
    }
  });
}

// A list with an object per row.
template <class S>
nlohmann::ordered_json metrics_list(const std::vector<S>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const S& row : rows) {
    nlohmann::ordered_json& object = list.emplace_back(nlohmann::ordered_json::object());
    each_metric<S>([&](const auto& one) {
      if (one.info.key != nullptr) object[one.info.key] = json_value(row.*one.member);
    });
  }
  return list;
}

// Reads such a list. json::exception: an element lacks a key, or has a value of another type.
template <class S>
std::vector<S> read_metrics(const nlohmann::json& list) {
  std::vector<S> rows;
  for (const nlohmann::json& object : list) {
    S& row = rows.emplace_back();
    each_metric<S>([&]<class T, class V>(const Metric<T, V>& one) {
      if (one.info.key == nullptr) return;
      const nlohmann::json& value = object.at(one.info.key);
      if constexpr (requires { typename V::value_type; } && !std::same_as<V, std::string>) {
        if (!value.is_null()) row.*one.member = value.get<typename V::value_type>();
      } else {
        row.*one.member = value.get<V>();
      }
    });
  }
  return rows;
}

}  // namespace strait::trace
