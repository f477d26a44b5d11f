#pragma once

#include <deque>
#include <nlohmann/json.hpp>

#include "framework/trace/combine_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/cli/report_curves.h"
#include "launcher/run/forecast_check.h"

namespace strait::cli {

// What the page says about an event, on the axis of steps and in a table.
struct ReportMark {
  double step = 0;
  std::string kind;  // "checkpoint", "fault", "member"
  std::string text;
};

// What a report says about a run, from the lines of its files. Memory is bounded however many there
// are: some thousand points per curve, a few hundred per process and boundary, sums, and the last
// line.
struct ReportData {
  static constexpr std::size_t kMostMarks = 500;

  std::map<std::string, ReportCurve> curves;  // by key
  std::map<double, double> evaluations;       // losses by step; a resume evaluates some again
  trace::MetricTotals<trace::BoundaryMetrics> boundaries;
  trace::MetricTotals<trace::SyncMetrics> sync;
  ReportSeries progress;  // "tokens", "seconds", "bytes": sums up to each step
  ReportSeries idle;      // by process
  ReportSeries tflops;
  ReportSeries mfu;
  ReportSeries bytes;  // by boundary and direction
  ReportSeries bits;
  ReportSeries change;
  ReportSeries error;
  ReportSeries hits;
  ReportSeries sync_bytes;              // by process
  nlohmann::json last;                  // line of a step
  std::vector<run::PartSeconds> parts;  // of a step
  double tokens = 0;
  double seconds = 0;
  double sent_bytes = 0;
  double useful_tflop = 0;  // 10¹² operations
  double peak_tflop = 0;    // what the devices could have done meanwhile by their published peaks
  bool peaks_known = true;  // of all devices in all steps
  std::deque<ReportMark> marks;  // the latest ones
  std::size_t restarts = 0;
  std::set<std::string> builds;
  std::string end;  // how the run ended

  ReportCurve evaluation_curve() const;

  // Takes a line of metrics.jsonl. Lines without a step are skipped; so are values of the wrong
  // type.
  void add(const nlohmann::json& line);
  // Takes a line of events.jsonl.
  void add_event(const nlohmann::json& line);

 private:
  void add_compute(const nlohmann::json& line, std::int64_t step);
  void add_traffic(const nlohmann::json& line, std::int64_t step);
};

// The number or text of a key; 0 or empty if there is none.
double number_at(const nlohmann::json& object, const char* key);
std::string text_at(const nlohmann::json& object, const char* key);

}  // namespace strait::cli
