#include "launcher/cli/report_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace strait::cli {
namespace {

nlohmann::json page_point(const ReportPoint& point) {
  return {static_cast<std::int64_t>(point.step), page_number(point.value)};
}

}  // namespace

nlohmann::json page_number(double value) {
  const double rounded = std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
  constexpr double kExact = 1e15;
  if (std::abs(rounded) < kExact && rounded == std::trunc(rounded)) {
    return static_cast<std::int64_t>(rounded);
  }
  return rounded;
}

void ReportCurve::Run::add(const Run& other) {
  if (other.low.value < low.value) low = other.low;
  if (other.high.value > high.value) high = other.high;
}

void ReportCurve::add(const ReportPoint& point) {
  if (count_ == 0) first_ = lowest_ = highest_ = point;
  last_ = point;
  if (point.value < lowest_.value) lowest_ = point;
  if (point.value > highest_.value) highest_ = point;
  if (count_++ % run_length_ != 0) return runs_.back().add({point, point});
  if (runs_.size() == kMostRuns) {
    for (std::size_t i = 0; i < kMostRuns / 2; ++i) {
      runs_[i] = runs_[2 * i];
      runs_[i].add(runs_[2 * i + 1]);
    }
    runs_.resize(kMostRuns / 2);
    run_length_ *= 2;
  }
  runs_.push_back({point, point});
}

nlohmann::json ReportCurve::points() const {
  nlohmann::json points = nlohmann::json::array();
  for (const Run& run : runs_) {
    points.push_back({static_cast<std::int64_t>(std::min(run.low.step, run.high.step)),
                      page_number(run.low.value), page_number(run.high.value)});
  }
  return points;
}

nlohmann::json ReportCurve::figure(const char* title, const char* unit) const {
  return {{"title", title},
          {"unit", unit},
          {"points", points()},
          {"first", page_point(first_)},
          {"last", page_point(last_)},
          {"lowest", page_point(lowest_)},
          {"highest", page_point(highest_)}};
}

std::string ReportCurve::change() const {
  return fmt::format("{:.4g} to {:.4g}", first_.value, last_.value);
}

void ReportSeries::add(std::int64_t step, const std::string& name, double value) {
  if (named_.empty()) first_ = step;
  // Steps before the first one come from a damaged file.
  const std::int64_t after = std::max<std::int64_t>(step - first_, 0);
  while (after / length_ >= static_cast<std::int64_t>(kMostIntervals)) {
    length_ *= 2;
    for (auto& [other, sums] : named_) {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const Sum sum = sums[i];
        if (i % 2 == 0) sums[i / 2] = sum;
        if (i % 2 == 0) continue;
        sums[i / 2].value += sum.value;
        sums[i / 2].count += sum.count;
      }
      sums.resize((sums.size() + 1) / 2);
    }
  }
  std::vector<Sum>& sums = named_[name];
  const auto interval = static_cast<std::size_t>(after / length_);
  sums.resize(std::max(sums.size(), interval + 1));
  sums[interval].value += value;
  sums[interval].count += 1;
}

std::size_t ReportSeries::intervals() const {
  std::size_t most = 0;
  for (const auto& [name, sums] : named_) most = std::max(most, sums.size());
  return most;
}

nlohmann::json ReportSeries::means(const std::vector<Sum>& sums) const {
  nlohmann::json values = nlohmann::json::array();
  for (std::size_t i = 0; i < intervals(); ++i) {
    const Sum sum = i < sums.size() ? sums[i] : Sum{};
    values.push_back(sum.count == 0 ? nlohmann::json() : page_number(sum.value / sum.count));
  }
  return values;
}

nlohmann::json ReportSeries::means(const std::string& name) const {
  const auto found = named_.find(name);
  return means(found == named_.end() ? std::vector<Sum>{} : found->second);
}

nlohmann::json ReportSeries::figure(const char* title, const char* unit) const {
  nlohmann::json steps = nlohmann::json::array();
  for (std::size_t i = 0; i < intervals(); ++i) {
    steps.push_back(first_ + static_cast<std::int64_t>(i) * length_ + (length_ - 1) / 2);
  }
  nlohmann::json names = nlohmann::json::array();
  nlohmann::json values = nlohmann::json::array();
  for (const auto& [name, sums] : named_) {
    names.push_back(name);
    values.push_back(means(sums));
  }
  return {{"title", title},
          {"unit", unit},
          {"steps", std::move(steps)},
          {"names", std::move(names)},
          {"values", std::move(values)}};
}

}  // namespace strait::cli
