#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/fields/json_fields.h"
#include "framework/trace/combine_metrics.h"
#include "framework/trace/metric_json.h"
#include "framework/trace/traffic_metrics.h"
#include "launcher/cli/console.h"
#include "launcher/cli/metric_text.h"
#include "launcher/cli/report.h"
#include "launcher/run/run_recorder.h"
#include "tests/scratch_directory.h"

// A metric is declared in one table and appears everywhere.
namespace strait::cli {
namespace {

using testing::HasSubstr;
using trace::Combine;
using trace::Metric;

// StepMetrics with one more metric.
struct WiderMetrics : trace::StepMetrics {
  double data_seconds = 0;
};

}  // namespace
}  // namespace strait::cli

namespace strait::trace {

template <>
inline constexpr auto kMetrics<cli::WiderMetrics> = std::tuple_cat(
    kMetrics<StepMetrics>,
    std::tuple(metric(&cli::WiderMetrics::data_seconds, {.key = "data_seconds",
                                                         .unit = Unit::seconds,
                                                         .combine = Combine::mean,
                                                         .meaning = "waiting for the data source",
                                                         .label = {6, "data "},
                                                         .status = Status::line,
                                                         .chart = {5, "Data wait"},
                                                         .column = "data"})));

}  // namespace strait::trace

namespace strait::cli {
namespace {

void describe(auto& fields, fields::Is<WiderMetrics> auto& metrics) {
  trace::describe_metrics<WiderMetrics>(fields, metrics);
}

TEST(AddedMetric, AppearsInMessageLedgerFileAndText) {
  WiderMetrics first;
  first.seconds = 2;
  first.data_seconds = 0.5;
  const nlohmann::json message = fields::to_object(first, fields::JsonStyle{});
  EXPECT_EQ(message.at("data_seconds"), 0.5);
  WiderMetrics second = fields::from_object<WiderMetrics>(message, "step", fields::JsonStyle{});
  second.data_seconds = 1.5;

  std::vector<std::pair<net::ProcessName, WiderMetrics>> processes = {{{0, 0}, first},
                                                                      {{1, 0}, second}};
  const WiderMetrics step = trace::combine(processes);
  EXPECT_EQ(step.data_seconds, 1);
  EXPECT_EQ(step.seconds, 2);

  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  trace::append_metrics(line, step, processes);
  EXPECT_EQ(line.at("data_seconds"), 1);
  EXPECT_THAT(step_labels(step, false), testing::Contains("data 1 s"));
  EXPECT_THAT(metric_labels<WiderMetrics>(nlohmann::json::parse(line.dump()), trace::Status::line),
              testing::Contains("data 1 s"));
  EXPECT_THAT(metric_table(std::vector{step})[0], HasSubstr("data"));
}

// ---- every metric of the tables, through the code of a run

template <class V>
void set_value(V& value, int number) {
  if constexpr (std::same_as<V, std::string>) {
    value = std::to_string(number);
  } else if constexpr (trace::kIsOptional<V>) {
    value = static_cast<typename V::value_type>(number);
  } else {
    value = static_cast<V>(number);
  }
}

template <class S>
S numbered_metrics() {
  S metrics;
  int number = 2;
  trace::each_metric<S>([&](const auto& one) {
    if (one.member != nullptr && one.compute == nullptr) set_value(metrics.*one.member, number++);
  });
  return metrics;
}

template <class S>
std::vector<std::string> written_keys() {
  std::vector<std::string> keys;
  trace::each_metric<S>([&](const auto& one) {
    if (one.info.key != nullptr && one.info.combine != Combine::not_written) {
      keys.emplace_back(one.info.key);
    }
  });
  return keys;
}

run::StepDone numbered_step() {
  run::StepDone done;
  static_cast<trace::StepMetrics&>(done) = numbered_metrics<trace::StepMetrics>();
  done.step = store::Step{1};
  done.boundaries = {numbered_metrics<trace::BoundaryMetrics>()};
  done.sync = {numbered_metrics<trace::SyncMetrics>()};
  return done;
}

run::StepDone through_a_frame(const run::StepDone& done) {
  const net::Frame frame = run::format(run::StageMessage(done));
  return std::get<run::StepDone>(run::parse_stage_message(frame));
}

TEST(EveryMetric, ArrivesInStepMessage) {
  const run::StepDone sent = numbered_step();
  const run::StepDone received = through_a_frame(sent);
  trace::each_metric<trace::StepMetrics>(
      [&](const auto& one) { EXPECT_EQ(received.*one.member, sent.*one.member) << one.info.key; });
  EXPECT_EQ(received.boundaries, sent.boundaries);
  EXPECT_EQ(received.sync, sent.sync);
}

TEST(EveryMetric, IsInFilesOfTheRunAndInTheReport) {
  run::StepLedger ledger({{0, 0}});
  const auto line = ledger.add({0, 0}, through_a_frame(numbered_step()));
  ASSERT_TRUE(line.has_value());
  const ScratchDirectory scratch;
  const auto run = run::RunDirectory::create(scratch / "run", run::RunDirectory::Existing::refuse);
  run::RunRecorder recorder(run, "abc", 1);
  recorder.training(store::Step{}, store::Step{2});
  recorder.step(*line);
  recorder.reports({});

  const auto written = nlohmann::ordered_json::parse(ScratchDirectory::read(run.metrics()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : written.items()) keys.push_back(key);
  std::vector<std::string> expected = {"step"};
  for (const std::string& key : written_keys<trace::StepMetrics>()) expected.push_back(key);
  expected.insert(expected.end(), {"boundaries", "sync"});
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(trace::read_metrics<trace::BoundaryMetrics>(written.at("boundaries")),
            line->boundaries);
  EXPECT_EQ(trace::read_metrics<trace::SyncMetrics>(written.at("sync")), line->sync);

  const auto status = nlohmann::json::parse(ScratchDirectory::read(scratch / "run/status.json"));
  ReportData report;
  report.add(nlohmann::json::parse(written.dump()));
  const std::string page = report_page(report, {});
  trace::each_metric<trace::StepMetrics>([&](const auto& one) {
    const bool in_status = one.info.status != trace::Status::none;
    EXPECT_EQ(status.contains(one.info.key), in_status) << one.info.key;
    EXPECT_THAT(page, HasSubstr(one.info.chart.title)) << one.info.key;
  });
  const auto has_heading = [&](const auto& one) {
    const char* const heading = one.info.column;
    EXPECT_THAT(page, HasSubstr(heading == nullptr ? "" : heading));
  };
  trace::each_metric<trace::BoundaryMetrics>(has_heading);
  trace::each_metric<trace::SyncMetrics>(has_heading);
}

// ---- docs/metrics.md

// In the order of trace::Unit and trace::Combine.
constexpr std::array kUnitText = {"name",     "nats",    "",      "per update", "tokens",
                                  "tokens/s", "TFLOP/s", "s",     "bytes",      "rows",
                                  "rounds",   "share",   "ratio", "flag"};
constexpr std::array kCombineText = {"key", "first", "latest",     "max",     "any",
                                     "sum", "mean",  "by process", "derived", "message only"};

template <class S>
std::string table_of_keys() {
  std::string table;
  trace::each_metric<S>([&](const auto& one) {
    const trace::MetricInfo& info = one.info;
    if (info.key == nullptr || info.combine == Combine::not_written) return;
    table += fmt::format("| `{}` | {} | {} | {} |\n", info.key,
                         kUnitText.at(static_cast<std::size_t>(info.unit)),
                         kCombineText.at(static_cast<std::size_t>(info.combine)), info.meaning);
  });
  return table;
}

TEST(MetricsPage, ListsEveryKey) {
  std::ifstream file("docs/metrics.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(page, HasSubstr(table_of_keys<trace::StepMetrics>()));
  EXPECT_THAT(page, HasSubstr(table_of_keys<trace::BoundaryMetrics>()));
  EXPECT_THAT(page, HasSubstr(table_of_keys<trace::SyncMetrics>()));
}

}  // namespace
}  // namespace strait::cli
