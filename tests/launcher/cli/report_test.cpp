#include "launcher/cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/trace/metric_json.h"
#include "framework/trace/traffic_metrics.h"

namespace strait::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

ReportPlan some_plan() {
  ReportPlan plan;
  plan.run = "a<b>&c";
  plan.text = "gpt2 with 2 blocks";
  return plan;
}

// What the page's script draws.
json drawn(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const std::size_t start = page.find(begin) + begin.size();
  return json::parse(page.substr(start, page.find("</script>", start) - start));
}

// The figure of this title; null: the page has none.
json figure(const std::string& page, const std::string& title) {
  const json data = drawn(page);
  for (const json& section : data["sections"]) {
    for (const json& one : section["figures"]) {
      if (one["title"].get<std::string>().starts_with(title)) return one;
    }
  }
  return nullptr;
}

template <class S>
json rows(const std::vector<S>& list) {
  return json::parse(trace::metrics_list(list).dump());
}

TEST(Report, IsSelfContainedPage) {
  ReportData report;
  report.add({{"step", 1}, {"loss", 4.0}, {"tokens_per_second", 10.0}});
  report.add({{"step", 2}, {"loss", nullptr}, {"tokens_per_second", 12.0}});
  report.add({{"step", 3}, {"loss", 2.0}, {"tokens_per_second", 11.0}});
  report.add_event({{"event", "checkpoint"}, {"step", 2}});
  report.add_event({{"event", "replica_left"}, {"step", 3}, {"text", "</script><b>"}});
  const std::string page = report_page(report, some_plan());
  const json loss = figure(page, "Loss");
  EXPECT_EQ(loss["points"], json::parse("[[1,4,4],[3,2,2]]"));
  EXPECT_EQ(loss["unit"], "nats");
  EXPECT_EQ(loss["last"], json::parse("[3,2]"));
  EXPECT_EQ(drawn(page)["marks"][0], json::parse(R"([2,"checkpoint","checkpoint"])"));
  // Nothing is fetched, and the browser is told to fetch nothing.
  EXPECT_THAT(page, Not(testing::ContainsRegex("src=|href=|url\\(|fetch\\(|import")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("a<b>")));
  EXPECT_THAT(page, HasSubstr("a&lt;b&gt;&amp;c"));
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
}

TEST(Report, RunWithoutStepsHasPlanAndNoFigures) {
  const std::string page = report_page({}, some_plan());
  EXPECT_THAT(page, HasSubstr("gpt2 with 2 blocks"));
  EXPECT_EQ(drawn(page)["sections"], json::array());
}

TEST(Report, SkipsValuesThatAreNotWhatTheirKeysSay) {
  ReportData report;
  const auto add = [&report](const char* line) { report.add(json::parse(line)); };
  add(R"({"step":1,"loss":4})");
  for (const char* line :
       {"null", "[1]", "7", R"({"loss":9})", R"({"step":"x","loss":9})",
        R"({"step":2,"loss":"9","boundaries":5,"sync":{"a":1},"idle":3})",
        R"({"step":3,"boundaries":[{"boundary":7}],"sync":[[]],"idle":{"0.0":"x"}})",
        R"({"step":4,"memory_bytes":{"0.0":"x"},"program_bytes":3})"}) {
    EXPECT_NO_THROW(add(line)) << line;
  }
  EXPECT_EQ(figure(report_page(report, {}), "Loss")["points"], json::parse("[[1,4,4]]"));
}

TEST(Report, ShowsHowTheRunEndedLast) {
  ReportData report;
  for (const char* line : {"null", "[1]", R"({"event":"ended","step":"x","meaning":7})",
                           R"({"event":"ended","step":3,"meaning":"stopped","cause":""})"}) {
    report.add_event(json::parse(line));
  }
  EXPECT_THAT(report_page(report, {}), HasSubstr(">Ended at step 3: stopped</p>"));
  report.add_event({{"event", "training"}, {"from", 3}});
  report.add({{"step", 4}});
  EXPECT_THAT(report_page(report, {}), HasSubstr(">Training; written after step 4</p>"));
  report.add_event(
      {{"event", "ended"}, {"step", 5}, {"meaning", "out of memory"}, {"cause", "stage <1>"}});
  EXPECT_THAT(report_page(report, {}),
              HasSubstr(">Ended at step 5: out of memory. stage &lt;1&gt;</p>"));
}

TEST(Report, ShowsEvaluationLosses) {
  ReportData report;
  report.add_event({{"event", "evaluated"}, {"step", 2}, {"loss", 5.5}, {"tokens", 3}});
  report.add_event({{"event", "evaluated"}, {"step", 4}, {"loss", 4.5}, {"tokens", 3}});
  report.add_event({{"event", "evaluated"}, {"step", 4}, {"loss", 4.25}, {"tokens", 3}});
  EXPECT_EQ(figure(report_page(report, {}), "Evaluation loss")["points"],
            json::parse("[[2,5.5,5.5],[4,4.25,4.25]]"));
}

// A resume from an earlier checkpoint takes back what came after it; so does a restart.
TEST(Report, ShowsNothingThatAResumeHasTakenBack) {
  ReportData report;
  report.add_event({{"event", "training"}, {"from", 0}, {"to", 20}});
  for (const int step : {3, 5, 6, 9}) {
    report.add_event({{"event", "evaluated"}, {"step", step}, {"loss", 10.0 - step}});
    report.add_event({{"event", "checkpoint"}, {"step", step}});
  }
  report.add_event({{"event", "checkpoint_failed"}, {"step", 9}, {"text", "disk full"}});
  report.add_event({{"event", "training"}, {"from", 5}, {"to", 8}});
  report.add_event({{"event", "evaluated"}, {"step", 8}, {"loss", 6.5}});
  report.add_event({{"event", "checkpoint"}, {"step", 8}});
  const std::string page = report_page(report, {});
  EXPECT_EQ(figure(page, "Evaluation loss")["points"],
            json::parse("[[3,7,7],[5,5,5],[8,6.5,6.5]]"));
  EXPECT_THAT(page, HasSubstr("<dt>evaluation loss</dt><dd>6.5</dd>"));
  EXPECT_EQ(
      drawn(page)["marks"],
      json::parse(R"([[3,"checkpoint","checkpoint"],[5,"checkpoint","checkpoint"],)"
                  R"([9,"fault","checkpoint failed: disk full"],[8,"checkpoint","checkpoint"]])"));
}

TEST(Report, SaysThatTheLastLossIsNotFinite) {
  ReportData report;
  EXPECT_EQ(report.last_loss_text(), "-");
  const auto expect_loss = [&](const std::string& last, const std::string& change) {
    EXPECT_EQ(report.last_loss_text(), last);
    EXPECT_EQ(report.last_loss().has_value(), last != "not finite");
    EXPECT_THAT(report_page(report, {}), HasSubstr("<dt>loss</dt><dd>" + change + "</dd>"));
  };
  report.add({{"step", 1}, {"loss", nullptr}, {"targets", 7}});
  expect_loss("not finite", "not finite");
  report.add({{"step", 2}, {"loss", 4.0}, {"targets", 7}});
  expect_loss("4", "4 to 4");
  report.add({{"step", 3}, {"loss", nullptr}, {"targets", 0}});  // it has no loss
  expect_loss("4", "4 to 4");
  report.add({{"step", 4}, {"loss", nullptr}, {"targets", 7}});
  expect_loss("not finite", "4 to not finite");
  report.add({{"step", 5}, {"loss", nullptr}, {"targets", 0}});
  expect_loss("not finite", "4 to not finite");
}

// Two steps of one boundary and one replica.
ReportData trained(std::uint64_t bfloat16_bytes = 6000) {
  ReportData report;
  trace::BoundaryMetrics boundary;
  boundary.boundary = "0.0>1.0";
  boundary.direction = "forward";
  boundary.raw_bytes = 8000;
  boundary.sent_bytes = 1000;
  boundary.hits = 3;
  boundary.cache_misses = 1;
  trace::SyncMetrics sync;
  sync.process = "0.0";
  sync.sent_bytes = 500;
  sync.bfloat16_bytes = bfloat16_bytes;
  for (const int step : {1, 2}) {
    report.add({{"step", step},
                {"loss", 5.0 / step},
                {"tokens", 100},
                {"seconds", 2.0},
                {"bytes_forward", 500},
                {"bytes_sync", 500},
                {"idle", {{"0.0", 0.25}}},
                {"memory_bytes", {{"0.0", 900}}},
                {"program_bytes", {{"0.0", 300}}},
                {"boundaries", rows(std::vector{boundary})},
                {"sync", rows(std::vector{sync})}});
  }
  return report;
}

TEST(Report, ComparesNothingWithSumsInSharedMemory) {
  ReportPlan plan = some_plan();
  plan.sync_speeds["0.0"] = 1000;
  const std::string page = report_page(trained(0), plan);
  EXPECT_THAT(page, HasSubstr("<dt>raw would have sent</dt><dd>16.0 kB</dd>"));
  EXPECT_THAT(page, testing::Not(HasSubstr("of replicas, in bfloat16")));
  EXPECT_THAT(page, testing::Not(HasSubstr("raw on the same links")));
}

TEST(Report, BeginsWithWhatTheRunDid) {
  ReportPlan plan = some_plan();
  plan.raw_dtype = "bfloat16";
  plan.raw_value_bytes = 2;
  plan.boundary_speeds[{"0.0>1.0", "forward"}] = 10;
  plan.sync_speeds["0.0"] = 1000;
  const std::string page = report_page(trained(), plan);
  for (const char* fact :
       {"<dd>5 to 2.5</dd>", "<dd>200</dd>", "<dd>50</dd>", "<dd>0:04</dd>",
        "<dt>sent</dt><dd>2.0 kB</dd>",
        // 8 kB of float32 are 4 kB of bfloat16 a step, and a replica's sums are 6 kB.
        "<dt>raw would have sent</dt><dd>20.0 kB</dd>", "6.7 times the 3.0 kB",
        "<dt>raw on the same links</dt><dd>13:20</dd>", "instead of 3:20: on 0.0&gt;1.0 forward"}) {
    EXPECT_THAT(page, HasSubstr(fact));
  }
  // Without a known speed nothing is said of time.
  EXPECT_THAT(report_page(trained(), {}), Not(HasSubstr("raw on the same links")));
}

TEST(Report, SaysHowMuchOfThePeakIsUsedOnlyWhereItIsKnown) {
  const auto step = [](int number, const char* mfu) {
    json line =
        json::parse(R"({"tokens":100,"seconds":2,"devices":2,"tflops":{"0.0":10,"1.0":30}})");
    line["step"] = number;
    line["mfu"] = json::parse(mfu);
    return line;
  };
  ReportData report;
  report.add(step(1, R"({"0.0":0.5,"1.0":0.5})"));
  report.add(step(2, R"({"0.0":0.25,"1.0":0.5})"));  // 10 of 40 and 30 of 60
  std::string page = report_page(report, {});
  EXPECT_THAT(page, HasSubstr("<dt>TFLOP/s</dt><dd>40</dd>"));
  EXPECT_THAT(page, HasSubstr("; 44 % of the devices' published peak"));  // 160 of 360
  EXPECT_THAT(page, HasSubstr("25 per device"));
  EXPECT_EQ(figure(page, "Useful work")["values"], json::parse("[[10,10],[30,30]]"));
  EXPECT_EQ(figure(page, "MFU")["values"], json::parse("[[0.5,0.25],[0.5,0.5]]"));
  report.add(step(3, R"({"0.0":0.25,"1.0":null})"));
  page = report_page(report, {});
  EXPECT_THAT(page, HasSubstr("the peak of a device is not known"));
  EXPECT_THAT(page, Not(HasSubstr("published peak (MFU)")));
}

TEST(Report, ShowsBoundariesLinksReplicasAndMemory) {
  ReportPlan plan = some_plan();
  plan.memory_bytes["0.0"] = 1200;
  plan.boundary_speeds[{"0.0>1.0", "forward"}] = 5000;
  plan.sync_method = "cocktail";
  plan.staleness = 1;
  const std::string page = report_page(trained(), plan);
  EXPECT_EQ(figure(page, "Bits a value")["values"], json::parse("[[4,4]]"));
  EXPECT_EQ(figure(page, "Cache hits")["values"], json::parse("[[0.75,0.75]]"));
  EXPECT_EQ(figure(page, "Bubble")["names"], json::parse(R"(["0.0"])"));
  EXPECT_EQ(figure(page, "Memory")["bars"], json::parse(R"([["0.0",600,1200]])"));
  EXPECT_EQ(figure(page, "Load")["bars"],
            json::parse(R"([["0.0>1.0 forward",500,5000],["0.0 replicas",250,null]])"));
  EXPECT_THAT(figure(page, "Boundary traffic, summed over steps 1 to 2;")["rows"].dump(),
              HasSubstr("8.0x"));
  EXPECT_THAT(figure(page, "Traffic between replicas")["title"].get<std::string>(),
              HasSubstr("cocktail, 1 steps late by the plan"));
  EXPECT_EQ(drawn(page)["progress"]["values"], json::parse("[[1000,2000],[2,4],[100,200]]"));
}

TEST(Report, TakesThePlanOfARunWithoutSecrets) {
  std::ifstream stream("tests/launcher/recipe/plan.json");
  plan::Plan plan = plan::plan_from_json(json::parse(stream));
  plan.recipe.model.path = "models/tiny/";
  const ReportPlan shown = report_plan(plan, "as printed", {});
  EXPECT_EQ(shown.memory_bytes.size(), 4U);
  EXPECT_TRUE(shown.staleness.has_value());
  EXPECT_THAT(shown.summary, HasSubstr("tiny; 2 stages, 2 replicas"));
  EXPECT_EQ(shown.text, "as printed");
}

// Two stages on a host each.
ReportPlan two_hosts() {
  ReportPlan plan = some_plan();
  plan.nodes = {{"a", "stage 0.0", 0}, {"b", "stage 1.0", 0}};
  plan.paths = {{0, 1, "0.0>1.0", "forward", 5000.0, true},
                {1, 0, "0.0>1.0", "backward", std::nullopt, true},
                {0, 1, "0.0", "replicas", 5000.0, false}};
  return plan;
}

TEST(Report, MapHasRatesOnlyOfLinksWhoseBytesAreKnown) {
  const json map = figure(report_page(trained(), two_hosts()), "Map");
  EXPECT_EQ(map["nodes"], json::parse(R"([["a","stage 0.0",0],["b","stage 1.0",0]])"));
  // 2 kB in 4 s; of the backward nothing was counted; the replicas' bytes go to several.
  EXPECT_EQ(map["edges"], json::parse(R"([[0,1,"0.0>1.0 forward",500,5000],
      [1,0,"0.0>1.0 backward",null,null],[0,1,"replicas",null,5000]])"));
}

TEST(Report, MapHasHostsOrTheProcessesOfOne) {
  std::ifstream stream("tests/launcher/recipe/plan.json");
  plan::Plan plan = plan::plan_from_json(json::parse(stream));
  const ReportPlan alone = report_plan(plan, "", {});
  ASSERT_EQ(alone.nodes.size(), 4U);
  EXPECT_EQ(alone.nodes[0].name, "0.0");
  const auto forward = std::ranges::find(alone.paths, "forward", &ReportPlan::Path::direction);
  ASSERT_NE(forward, alone.paths.end());
  EXPECT_EQ(alone.nodes[forward->from].name + ">" + alone.nodes[forward->to].name, forward->name);
  plan.hosts.push_back(plan.hosts.front());
  plan.hosts.back().name = "b";
  for (plan::Plan::Process& process : plan.processes) {
    if (process.name.stage == 0) continue;
    process.host = "b";
    process.host_index = 1;
  }
  const ReportPlan apart = report_plan(plan, "", {});
  ASSERT_EQ(apart.nodes.size(), 2U);
  EXPECT_EQ(apart.nodes[1].name, "b");
  EXPECT_EQ(apart.nodes[1].content, "stages 1.0, 1.1");
  ASSERT_EQ(apart.paths.size(), 4U) << "boundaries; replicas are on one host";
  EXPECT_EQ(apart.paths[0].name, "0.0>1.0");
}

TEST(ComparePage, HasTheCurvesOfAllRunsOverTheirOwnProgress) {
  ReportData other;
  other.add({{"step", 1}, {"loss", 3.0}, {"tokens", 50}, {"seconds", 1.0}});
  other.add_event({{"event", "evaluated"}, {"step", 1}, {"loss", 3.5}});
  const json table =
      json::parse(R"({"columns":["run","loss"],"rows":[["one","2.5"],["two","3"]]})");
  const std::string page = compare_page({{"one", trained()}, {"two", other}}, table);
  const json curves = figure(page, "Loss")["curves"];
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[1], json::parse(R"({"name":"two","run":1,"points":[[1,3,3]]})"));
  EXPECT_EQ(curves[0]["points"].size(), 2U);
  EXPECT_EQ(figure(page, "Evaluation loss")["curves"].size(), 1U);
  EXPECT_EQ(drawn(page)["runs"][1]["values"], json::parse("[[0],[1],[50]]"));
  EXPECT_EQ(figure(page, "Settings")["rows"][1][1], "3");
}

TEST(Report, OfLongRunOfManyProcessesStaysSmallAndKeepsPeaks) {
  ReportData report;
  std::vector<trace::BoundaryMetrics> boundaries(126);
  for (int i = 0; i < 126; ++i) {
    auto& one = boundaries[static_cast<std::size_t>(i)];
    one.boundary = std::to_string(i / 2) + ".0>" + std::to_string(i / 2 + 1) + ".0";
    one.direction = i % 2 == 0 ? "forward" : "backward";
    one.raw_bytes = 8'000'000;
    one.sent_bytes = 1'234'567;
    one.change = one.error = 0.123456;
    one.hits = 3;
  }
  json more = {{"boundaries", rows(boundaries)}};
  StepTimeline timeline;
  std::vector<trace::SyncMetrics> sync(64);
  for (std::size_t i = 0; i < sync.size(); ++i) {
    sync[i] = {fmt::format("{}.0", i), 1, 123'456, 14'123'456, 0.123456, 0.123456, 0.123456};
    for (const char* key : {"idle", "tflops", "mfu"}) more[key][sync[i].process] = 0.123456;
    for (const char* key : {"memory_bytes", "program_bytes"})
      more[key][sync[i].process] = 1234567890;
    timeline.rows.push_back({"stage " + sync[i].process, {}});
    for (int span = 0; span < 4'000; ++span) {
      timeline.rows.back().spans.push_back({"compute", "forward", 0.001234 * span, 0.001, span});
    }
  }
  more["sync"] = rows(sync);
  for (int step = 1; step <= 100'000; ++step) {
    json line = {{"step", step}, {"loss", step == 77'777 ? 100.0 : 2.0 + step % 2 / 3.0}};
    // The traffic of all steps would take a minute; what it adds is bounded by the steps' range.
    if (step % 250 == 0) line.update(more);
    report.add(line);
  }
  ReportPlan plan;
  plan.predicted = timeline;
  const std::string page = report_page(report, plan, timeline);
  EXPECT_LT(page.size(), 5'000'000U);
  EXPECT_EQ(figure(page, "Distance of replicas")["names"].size(), 64U);
  const json loss = figure(page, "Loss");
  EXPECT_EQ(loss["highest"], json::parse("[77777,100]"));
  EXPECT_LE(loss["points"].size(), 2048U);
  EXPECT_TRUE(std::ranges::any_of(loss["points"], [](const json& p) { return p[2] == 100; }));
  EXPECT_EQ(figure(page, "Bits a value")["names"].size(), 126U);
  EXPECT_LE(figure(page, "Bits a value")["steps"].size(), 256U);
}

}  // namespace
}  // namespace strait::cli
