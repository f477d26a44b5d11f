#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

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
  double last() const { return last_.value; }
  std::string change() const;  // "5 to 2.5"

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

}  // namespace strait::cli
