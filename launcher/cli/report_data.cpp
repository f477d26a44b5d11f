#include "launcher/cli/report_data.h"

#include <cstdlib>

#include "framework/trace/metric_json.h"

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

namespace {

using nlohmann::json;

template <class S>
std::vector<S> rows_at(const json& line, const char* key) {
  const auto found = line.find(key);
  return found == line.end() ? std::vector<S>{} : trace::read_metrics<S>(*found);
}

std::optional<ReportMark> mark_of(const std::string& event, const json& line) {
  const double step = number_at(line, "step");
  const std::string text = text_at(line, "text");
  if (event == "checkpoint") return ReportMark{step, "checkpoint", "checkpoint"};
  if (event == "checkpoint_failed") return ReportMark{step, "fault", "checkpoint failed: " + text};
  if (event == "restart") {
    return ReportMark{
        number_at(line, "from"), "fault",
        fmt::format("restart as generation {} from step {}: {}", number_at(line, "generation"),
                    number_at(line, "from"), text_at(line, "cause"))};
  }
  if (event == "replica_left") {
    return ReportMark{step, "fault",
                      fmt::format("replica {} left: {}", number_at(line, "replica"), text)};
  }
  if (event == "replica_joined") {
    return ReportMark{step, "member", fmt::format("replica {} joined", number_at(line, "replica"))};
  }
  return std::nullopt;
}

}  // namespace

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double number_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

ReportCurve ReportData::evaluation_curve() const {
  ReportCurve curve;
  for (const auto& [step, loss] : evaluations) curve.add({step, loss});
  return curve;
}

std::optional<double> ReportData::last_loss() const {
  const auto losses = curves.find("loss");
  if (loss_not_finite || losses == curves.end()) return std::nullopt;
  return losses->second.last();
}

std::string ReportData::last_loss_text() const {
  const std::optional<double> loss = last_loss();
  if (loss) return fmt::format("{:.4g}", *loss);
  return loss_not_finite ? "not finite" : "-";
}

void ReportData::add_traffic(const json& line, std::int64_t step) {
  try {
    const auto rows = rows_at<trace::BoundaryMetrics>(line, "boundaries");
    const auto exchanges = rows_at<trace::SyncMetrics>(line, "sync");
    boundaries.add(step, rows);
    sync.add(step, exchanges);
    for (const trace::BoundaryMetrics& one : rows) {
      const std::string name = one.boundary + " " + one.direction;
      const auto sent = static_cast<double>(one.sent_bytes);
      bytes.add(step, name, sent);
      if (one.raw_bytes > 0) {
        constexpr double kFloatBits = 32;
        bits.add(step, name, kFloatBits * sent / static_cast<double>(one.raw_bytes));
      }
      if (one.change) change.add(step, name, *one.change);
      if (one.error) error.add(step, name, *one.error);
      const auto cached = static_cast<double>(one.hits + one.cache_misses);
      if (cached > 0) hits.add(step, name, static_cast<double>(one.hits) / cached);
    }
    for (const trace::SyncMetrics& one : exchanges) {
      sync_bytes.add(step, one.process, static_cast<double>(one.sent_bytes));
      if (one.distance) distance.add(step, one.process, *one.distance);
    }
  } catch (const json::exception&) {
    // A line of another release, or a damaged one, is missing in the sums.
  }
}

void ReportData::add_compute(const json& line, std::int64_t step) {
  const auto by_process = [&line](const char* key) {
    const auto found = line.find(key);
    if (found == line.end() || !found->is_object()) return json::object();
    return *found;
  };
  const json waits = by_process("idle");
  for (const auto& [process, share] : waits.items()) {
    if (share.is_number()) idle.add(step, process, share.get<double>());
  }
  const double taken = number_at(line, "seconds");
  const json shares = by_process("mfu");
  const json rates = by_process("tflops");
  for (const auto& [process, rate] : rates.items()) {
    if (!rate.is_number() || rate == 0) continue;
    tflops.add(step, process, rate.get<double>());
    useful_tflop += rate.get<double>() * taken;
    const double share = number_at(shares, process.c_str());
    peaks_known = peaks_known && share > 0;
    if (share <= 0) continue;
    mfu.add(step, process, share);
    peak_tflop += rate.get<double>() / share * taken;
  }
}

void ReportData::add(const json& line) {
  const auto step = line.is_object() ? line.find("step") : line.end();
  if (step == line.end() || !step->is_number()) return;
  trace::each_metric<trace::StepMetrics>([&](const auto& one) {
    if (one.info.chart.rank == 0) return;
    const auto value = line.find(one.info.key);
    if (value == line.end() || !value->is_number()) return;
    curves[one.info.key].add({step->template get<double>(), value->template get<double>()});
  });
  // A number that is not finite is written as null. A step without targets has no loss.
  const auto loss = line.find("loss");
  if (loss != line.end() && loss->is_number()) loss_not_finite = false;
  if (loss != line.end() && loss->is_null() && number_at(line, "targets") > 0) {
    loss_not_finite = true;
  }
  tokens += number_at(line, "tokens");
  seconds += number_at(line, "seconds");
  for (const char* key : {"bytes_forward", "bytes_backward", "bytes_sync", "bytes_tied"}) {
    sent_bytes += number_at(line, key);
  }
  const auto number = step->get<std::int64_t>();
  progress.add(number, "bytes", sent_bytes);
  progress.add(number, "seconds", seconds);
  progress.add(number, "tokens", tokens);
  add_traffic(line, number);
  add_compute(line, number);
  last = line;
}

void ReportData::add_event(const json& line) {
  if (!line.is_object()) return;
  const std::string event = text_at(line, "event");
  if (event == "evaluated" && line.contains("loss") && line.at("loss").is_number()) {
    evaluations[number_at(line, "step")] = number_at(line, "loss");
  } else if (event == "connected") {
    builds.insert(text_at(line, "build"));
  } else if (event == "training") {
    end.clear();  // it goes on
    // It has taken back the steps after this one.
    const double from = number_at(line, "from");
    evaluations.erase(evaluations.upper_bound(from), evaluations.end());
    std::erase_if(marks, [from](const ReportMark& mark) {
      return mark.kind == "checkpoint" && mark.step > from;
    });
  } else if (event == "ended") {
    const std::string cause = text_at(line, "cause");
    end = fmt::format("Ended at step {}: {}{}", number_at(line, "step"), text_at(line, "meaning"),
                      cause.empty() ? "" : ". " + cause);
  }
  if (event == "restart") ++restarts;
  if (const auto mark = mark_of(event, line)) {
    marks.push_back(*mark);
    if (marks.size() > kMostMarks) marks.pop_front();
  }
}

}  // namespace strait::cli
