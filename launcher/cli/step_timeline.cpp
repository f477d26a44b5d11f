#include "launcher/cli/step_timeline.h"

#include <nlohmann/json.hpp>

namespace strait::cli {
namespace {

using nlohmann::json;

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr std::size_t kMostSpansOfPage = 30'000;

// Calls `use` with every event of a merged trace.
void each_event(std::istream& trace, const std::function<void(const json&)>& use) {
  for (std::string line; std::getline(trace, line);) {
    if (line.starts_with(R"({"displayTimeUnit)")) line.erase(0, line.find('[') + 1);
    while (!line.empty() && line.back() != '}') line.pop_back();
    if (line.ends_with("]}")) line.resize(line.size() - 2);
    json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.value("pid", json()).is_number()) use(event);
  }
}

double number_of(const json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text_of(const json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

double argument(const json& event, const char* key, double absent) {
  const auto arguments = event.find("args");
  if (arguments == event.end() || !arguments->is_object() || !arguments->contains(key))
    return absent;
  return number_of(*arguments, key);
}

// When each process (by number) ended each step, microseconds.
using StepEnds = std::map<std::int64_t, std::map<std::int64_t, double>>;

struct Window {
  std::int64_t step = 0;
  double start = 0;
  double end = 0;
};

std::optional<Window> median_step(const StepEnds& ends, std::size_t processes) {
  constexpr std::size_t kLastSteps = 64;
  const auto last_end = [](const std::map<std::int64_t, double>& by_process) {
    double last = -std::numeric_limits<double>::infinity();
    for (const auto& [process, end] : by_process) last = std::max(last, end);
    return last;
  };
  std::vector<std::pair<double, Window>> windows;
  for (auto step = ends.rbegin(); step != ends.rend() && windows.size() < kLastSteps; ++step) {
    const auto before = ends.find(step->first - 1);
    if (before == ends.end() || before->second.size() < processes ||
        step->second.size() < processes)
      continue;
    double start = std::numeric_limits<double>::infinity();
    for (const auto& [process, end] : before->second) start = std::min(start, end);
    const double end = last_end(step->second);
    windows.push_back({end - last_end(before->second), {step->first, start, end}});
  }
  if (windows.empty()) return std::nullopt;
  const auto middle = windows.begin() + static_cast<std::ptrdiff_t>(windows.size() / 2);
  std::ranges::nth_element(windows, middle, {}, [](const auto& one) { return one.first; });
  return middle->second;
}

}  // namespace

StepTimeline measured_step(std::istream& trace) {
  StepEnds ends;
  std::map<std::int64_t, StepTimeline::Row> processes;
  each_event(trace, [&](const json& event) {
    const auto process = static_cast<std::int64_t>(number_of(event, "pid"));
    if (text_of(event, "name") == "process_name") {
      processes[process].process = text_of(event.value("args", json::object()), "name");
    } else if (text_of(event, "name") == "update") {
      const auto step = static_cast<std::int64_t>(argument(event, "step", 0));
      ends[step][process] = number_of(event, "ts") + number_of(event, "dur");
    }
  });
  const std::optional<Window> window = median_step(ends, processes.size());
  if (!window || processes.empty()) return {};
  trace.clear();
  trace.seekg(0);
  each_event(trace, [&](const json& event) {
    if (text_of(event, "ph") != "X") return;
    const double start = std::max(number_of(event, "ts"), window->start);
    const double end = std::min(number_of(event, "ts") + number_of(event, "dur"), window->end);
    if (end <= start) return;
    const std::string category = text_of(event, "cat");
    processes[static_cast<std::int64_t>(number_of(event, "pid"))].spans.push_back(
        {category == "wait" ? "compute" : category, text_of(event, "name"),
         (start - window->start) / kMicrosecondsPerSecond, (end - start) / kMicrosecondsPerSecond,
         static_cast<std::int64_t>(argument(event, "micro_batch", -1))});
  });
  StepTimeline timeline;
  timeline.step = window->step;
  timeline.seconds = (window->end - window->start) / kMicrosecondsPerSecond;
  timeline.rows.reserve(processes.size());
  for (auto& [number, row] : processes) timeline.rows.push_back(std::move(row));
  return timeline;
}

json timeline_figure(const StepTimeline& timeline) {
  std::vector<double> durations;
  for (const StepTimeline::Row& row : timeline.rows) {
    for (const StepTimeline::Span& span : row.spans) durations.push_back(span.seconds);
  }
  double shortest = 0;
  if (durations.size() > kMostSpansOfPage) {
    const auto limit = durations.begin() + static_cast<std::ptrdiff_t>(kMostSpansOfPage);
    std::ranges::nth_element(durations, limit, std::greater<>());
    shortest = std::nextafter(*limit, 1e9);  // longer than the first that is left out
  }
  std::map<std::string, std::size_t> known;
  json names = json::array();
  json rows = json::array();
  std::size_t left_out = 0;
  const auto microseconds = [](double seconds) {
    return static_cast<std::int64_t>(std::llround(seconds * kMicrosecondsPerSecond));
  };
  for (const StepTimeline::Row& row : timeline.rows) {
    json lanes = json::object();
    for (const StepTimeline::Span& span : row.spans) {
      if (span.seconds < shortest) {
        ++left_out;
        continue;
      }
      const auto [name, added] = known.emplace(span.name, known.size());
      if (added) names.push_back(span.name);
      lanes[span.lane].push_back(
          {microseconds(span.start), microseconds(span.seconds), name->second, span.micro_batch});
    }
    rows.push_back({{"process", row.process}, {"lanes", std::move(lanes)}});
  }
  return {{"step", timeline.step},
          {"seconds", timeline.seconds},
          {"names", std::move(names)},
          {"rows", std::move(rows)},
          {"left_out", left_out}};
}

}  // namespace strait::cli
