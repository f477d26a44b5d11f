#include "framework/trace/span_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/refusal_of.h"
#include "tests/scratch_directory.h"

namespace strait::trace {
namespace {

using nlohmann::json;

json written(const SpanLog& log) {
  const ScratchDirectory folder;
  log.write(folder / "trace.json");
  return json::parse(ScratchDirectory::read(folder / "trace.json"));
}

TEST(SpanLog, WritesWhatPerfettoReads) {
  SpanLog log("stage \"1.0\"", 7);
  log.name_row(2, "codec");
  log.record({"forward", "compute", 0, 1'500, 4'002, "micro_batch", 3});
  log.record({"wait", "wait", 2, 5'000, 5'000});
  const json trace = written(log);
  EXPECT_EQ(trace["otherData"]["overwritten_spans"], 0);
  const json expected = json::parse(R"([
    {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "stage \"1.0\""}},
    {"ph": "M", "name": "thread_name", "pid": 7, "tid": 2, "args": {"name": "codec"}},
    {"ph": "X", "name": "forward", "cat": "compute", "pid": 7, "tid": 0, "ts": 1.5, "dur": 2.502,
     "args": {"micro_batch": 3}},
    {"ph": "X", "name": "wait", "cat": "wait", "pid": 7, "tid": 2, "ts": 5.0, "dur": 0.0}])");
  EXPECT_EQ(trace["traceEvents"], expected);
}

TEST(SpanLog, ArrowsConnectWhereAMessageLeavesWithWhereItArrives) {
  SpanLog log("stage 0.0", 0);
  log.name_row(0, "compute");
  const int send = log.add_row("send");
  const int receive = log.add_row("receive");
  EXPECT_EQ(receive, send + kRowStep);
  Span span{"activation", "send", send, 1'000, 2'000, "micro_batch", 3, 640, 77};
  log.record(span);
  span.arrives = true;
  span.argument = nullptr;
  log.record(span);
  const json events = written(log)["traceEvents"];
  const json& leaves = events[events.size() - 2];
  EXPECT_EQ(leaves["bind_id"], 77);
  EXPECT_EQ(leaves["flow_out"], true);
  EXPECT_EQ(leaves["args"], json({{"micro_batch", 3}, {"bytes", 640}}));
  EXPECT_EQ(events.back()["flow_in"], true);
  EXPECT_FALSE(events.back().contains("flow_out"));
  EXPECT_EQ(events.back()["args"], json({{"bytes", 640}}));
}

TEST(SpanLog, TimesKeepTheirNanosecondsOnAMachineThatIsLongUp) {
  SpanLog log("stage 0.0", 0);
  constexpr Nanoseconds kTenYears = 315'360'000'000'000'001;
  log.record({"forward", "compute", 0, kTenYears, kTenYears + 1});
  const ScratchDirectory folder;
  log.write(folder / "trace.json");
  EXPECT_THAT(ScratchDirectory::read(folder / "trace.json"),
              testing::HasSubstr(R"("ts":315360000000000.001,"dur":0.001)"));
}

TEST(SpanLog, WhenFullTheOldestGoAndAreCounted) {
  SpanLog log("stage 0.0", 0, 3);
  for (int i = 0; i < 8; ++i) log.record({"step", "compute", i, i, i + 1});
  std::vector<int> rows;
  for (const Span& span : log.spans()) rows.push_back(span.row);
  EXPECT_EQ(rows, (std::vector<int>{5, 6, 7}));
  EXPECT_EQ(log.overwritten(), 5U);
  EXPECT_EQ(written(log)["otherData"]["overwritten_spans"], 5);
}

TEST(SpanLog, WritesTheNewestSpansAloneWhereAsked) {
  SpanLog log("stage 0.0", 0);
  for (int i = 0; i < 8; ++i) log.record({"step", "compute", i, i, i + 1});
  const ScratchDirectory folder;
  log.write(folder / "trace.json", 2);
  const json events = json::parse(ScratchDirectory::read(folder / "trace.json"))["traceEvents"];
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1]["tid"], 6);
  EXPECT_EQ(events[2]["tid"], 7);
}

TEST(SpanLog, ARowNamedTwiceHasItsLastName) {
  SpanLog log("stage 0.0", 0);
  log.name_row(1, "a");
  log.name_row(1, "b");
  const json events = written(log)["traceEvents"];
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1]["args"]["name"], "b");
}

TEST(SpanLog, NoSpanOfAnyThreadIsLostWhileOthersReadAndWrite) {
  SpanLog log("stage 0.0", 0, 1000);
  const ScratchDirectory folder;
  constexpr int kThreads = 3;
  constexpr int kSpans = 300;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kSpans; ++i) log.record({"work", "compute", t, i, i});
      });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) log.write(folder / "trace.json");
    });
  }
  std::vector<int> next(kThreads, 0);
  for (const Span& span : log.spans()) {
    EXPECT_EQ(span.start, next[static_cast<std::size_t>(span.row)]++);
  }
  EXPECT_EQ(next, std::vector<int>(kThreads, kSpans));
}

TEST(SpanLog, APathThatCannotBeWrittenIsNamed) {
  const ScratchDirectory folder;
  const SpanLog log("stage 0.0", 0);
  const std::string refusal = refusal_of<TraceError>([&] { log.write(folder / "none/t.json"); });
  EXPECT_THAT(refusal, testing::HasSubstr((folder / "none/t.json").string()));
  EXPECT_THAT(refusal, testing::HasSubstr("No such file or directory"));
}

TEST(SpanLog, AFileThatCannotTakeItsNameLeavesNothingBehind) {
  const ScratchDirectory folder;
  std::filesystem::create_directory(folder / "trace.json");
  const SpanLog log("stage 0.0", 0);
  EXPECT_THAT(refusal_of<TraceError>([&] { log.write(folder / "trace.json"); }),
              testing::HasSubstr("directory"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 0);
}

}  // namespace
}  // namespace strait::trace
