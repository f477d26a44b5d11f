#pragma once

#include <nlohmann/json.hpp>

#include "framework/trace/combine_metrics.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/run/forecast_check.h"

namespace strait::cli {

// A number as the page shows it: four digits, so that the page stays small.
nlohmann::json page_number(double value);

struct ReportPoint {
  double step = 0;
  double value = 0;
};

// The values of one key over the steps, in bounded memory. Beyond kMostRuns values, adjacent values
// are joined into runs of 2, 4, 8 and so on, whose lowest and highest values are drawn. So no peak
// is lost.
class ReportCurve {
 public:
  void add(const ReportPoint& point);
  bool empty() const { return count_ == 0; }
  // {"title", "unit", "points": [[step, lowest, highest]], "first", "last", "lowest", "highest"},
  // the last four as [step, value].
  nlohmann::json figure(const char* title, const char* unit) const;
  // The part of it that is drawn: [[step, lowest, highest]].
  nlohmann::json points() const;
  double first() const { return first_.value; }
  double last() const { return last_.value; }

 private:
  static constexpr std::size_t kMostRuns = 2048;  // even; more than the page has pixels

  struct Run {
    ReportPoint low;
    ReportPoint high;
    void add(const Run& other);
  };

  std::uint64_t count_ = 0;
  std::uint64_t run_length_ = 1;  // values in each run, except the last one
  std::vector<Run> runs_;
  ReportPoint first_;
  ReportPoint last_;
  ReportPoint lowest_;
  ReportPoint highest_;
};

// The values of several names over the steps, in bounded memory: means over intervals of 1, 2, 4
// and so on steps, of which there are at most kMostIntervals.
class ReportSeries {
 public:
  void add(std::int64_t step, const std::string& name, double value);
  bool empty() const { return named_.empty(); }
  // {"title", "unit", "steps": […], "names": […], "values": [[…]]}; null: no value in the interval.
  nlohmann::json figure(const char* title, const char* unit) const;
  // The means of one name; intervals without values are null.
  nlohmann::json means(const std::string& name) const;

 private:
  static constexpr std::size_t kMostIntervals = 256;

  struct Sum {
    double value = 0;
    double count = 0;
  };

  std::size_t intervals() const;
  nlohmann::json means(const std::vector<Sum>& sums) const;

  std::int64_t first_ = 0;  // step
  std::int64_t length_ = 1;
  std::map<std::string, std::vector<Sum>> named_;
};

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
  ReportSeries distance;                // of replicas, by process
  nlohmann::json last;                  // line of a step
  bool loss_not_finite = false;         // of the last step that had targets
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
  // Of the last step that had targets. Nullopt: there was none, or its loss is not finite.
  std::optional<double> last_loss() const;
  std::string last_loss_text() const;  // "2.5", "not finite", or "-" without such a step

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
