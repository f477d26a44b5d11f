#include "launcher/cli/report_data.h"

#include "framework/trace/metric_json.h"
#include "framework/trace/step_metrics.h"

namespace strait::cli {
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
