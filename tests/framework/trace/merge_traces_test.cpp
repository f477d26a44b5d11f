#include "framework/trace/merge_traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/trace/span_log.h"
#include "tests/refusal_of.h"
#include "tests/scratch_directory.h"

namespace strait::trace {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json merged(const ScratchDirectory& folder, const std::vector<std::filesystem::path>& files) {
  merge_traces(files, folder / "trace.json");
  return json::parse(ScratchDirectory::read(folder / "trace.json"))["traceEvents"];
}

TEST(MergeTraces, ProcessesStandSideBySideFromTimeZero) {
  const ScratchDirectory folder;
  SpanLog first("stage 0.0", 0);
  first.record({"forward", "compute", 0, 5'000'000, 6'000'000});
  SpanLog second("stage 1.0", 1);
  second.record({"forward", "compute", 0, 7'000'000, 9'000'000});
  first.write(folder / "a.json");
  second.write(folder / "b.json");
  const json events = merged(folder, {folder / "a.json", folder / "b.json"});
  const json expected = json::parse(R"([
    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "stage 0.0"}},
    {"ph": "X", "name": "forward", "cat": "compute", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1000.0},
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "stage 1.0"}},
    {"ph": "X", "name": "forward", "cat": "compute", "pid": 1, "tid": 0, "ts": 2000.0,
     "dur": 2000.0}])");
  EXPECT_EQ(events, expected);
}

TEST(MergeTraces, ProcessesOfTheSameNumberAreKeptApart) {
  const ScratchDirectory folder;
  std::vector<std::filesystem::path> files;
  for (const char* name : {"x", "y", "z"}) {
    SpanLog log(name, 4);
    log.record({name, "compute", 0, 0, 1});
    files.push_back(folder / (std::string(name) + ".json"));
    log.write(files.back());
  }
  std::map<std::string, std::set<int>> numbers;  // by name
  for (const json& event : merged(folder, files)) {
    const bool names = event["ph"] == "M";
    const json& name = names ? event["args"]["name"] : event["name"];
    numbers[name.get<std::string>()].insert(event["pid"].get<int>());
  }
  ASSERT_EQ(numbers.size(), 3U);
  std::set<int> all;
  for (const auto& [name, of_this_name] : numbers) {
    EXPECT_EQ(of_this_name.size(), 1U) << name;
    all.insert(of_this_name.begin(), of_this_name.end());
  }
  EXPECT_EQ(all.size(), 3U);
}

// The trace of a process on a host of this name, whose clock shows `ahead` µs more than it should.
std::filesystem::path on_host(const ScratchDirectory& folder, const char* host, double ahead,
                              const SpanLog& log) {
  const std::filesystem::path file = folder / (std::string(host) + ".json");
  log.write(file);
  json trace = json::parse(ScratchDirectory::read(file));
  trace["otherData"] = {{"clock", host}, {"unix_microseconds_at_zero", 1e15 - ahead + 3000}};
  for (json& event : trace["traceEvents"]) {
    if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + ahead;
  }
  ScratchDirectory::write(file, trace.dump());
  return file;
}

// Messages go from `out` at `sent` µs and arrive at `in` at `received` µs, where a thread has
// waited since `waits`.
void message(SpanLog& out, SpanLog& in, std::uint64_t number, Nanoseconds sent, Nanoseconds waits,
             Nanoseconds received) {
  Span span{"activation", "send", 10, sent * 1000, (sent + 1) * 1000, "micro_batch", 0, 9, number};
  out.record(span);
  span = {"activation", "receive", 20, waits * 1000, received * 1000, nullptr, 0, 9, number, true};
  in.record(span);
}

std::map<std::string, std::vector<std::pair<double, double>>> spans_by_category(
    const json& events) {
  std::map<std::string, std::vector<std::pair<double, double>>> found;  // starts and ends
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    const double start = event["ts"].get<double>();
    found[event["cat"].get<std::string>()].emplace_back(start, start + event["dur"].get<double>());
  }
  return found;
}

TEST(MergeTraces, AlignsClocksOfHostsAndDrawsTheLinkBetween) {
  const ScratchDirectory folder;
  SpanLog first("stage 0.0", 0);
  SpanLog second("stage 1.0", 1);
  first.name_row(10, "send 0.0>1.0 activations");
  message(first, second, 1, 100, 50, 110);
  message(first, second, 2, 104, 111, 150);  // queued after the first one
  message(second, first, 3, 120, 60, 130);   // as fast as the fastest in the other direction
  const json events =
      merged(folder, {on_host(folder, "a", 0, first), on_host(folder, "b", 77'000, second)});
  const auto spans = spans_by_category(events);
  using testing::ElementsAre;
  const auto span = [](double start, double end) {
    return testing::Pair(testing::DoubleNear(start, 1e-6), testing::DoubleNear(end, 1e-6));
  };
  // Time zero is the start of the first send.
  EXPECT_THAT(spans.at("link"), ElementsAre(span(0, 10), span(10, 50), span(20, 30)));
  EXPECT_THAT(spans.at("receive"), ElementsAre(span(20.001, 30), span(0.001, 10), span(11, 50)));
  EXPECT_THAT(events.dump(), HasSubstr(R"("args":{"name":"link 0.0>1.0 activations"})"));
}

TEST(MergeTraces, HostsWithoutMessagesAreAlignedByTheSystemsClocks) {
  const ScratchDirectory folder;
  SpanLog first("stage 0.0", 0);
  SpanLog second("stage 0.1", 1);
  first.record({"forward", "compute", 0, 5'000'000, 6'000'000});
  second.record({"forward", "compute", 0, 5'000'000, 6'000'000});
  const auto spans = spans_by_category(
      merged(folder, {on_host(folder, "a", 0, first), on_host(folder, "b", -400, second)}));
  EXPECT_EQ(spans.at("compute").at(0), spans.at("compute").at(1));
}

TEST(MergeTraces, NothingToMergeIsAnEmptyTrace) {
  const ScratchDirectory folder;
  EXPECT_EQ(merged(folder, {}), json::array());
}

TEST(MergeTraces, AFileThatIsNoTraceIsNamedAndTheOldResultStays) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "trace.json", "old");
  const auto refusal = [&](const std::string& content) {
    ScratchDirectory::write(folder / "bad.json", content);
    return refusal_of<TraceError>([&] {
      const std::vector<std::filesystem::path> files = {folder / "bad.json"};
      merge_traces(files, folder / "trace.json");
    });
  };
  for (const char* content :
       {"", "{", "[]", "{\"traceEvents\":3}", "{\"traceEvents\":[1]}",
        "{\"traceEvents\":[{\"pid\":\"x\"}]}", "{\"traceEvents\":[{\"pid\":1,\"ts\":\"x\"}]}"}) {
    EXPECT_THAT(refusal(content), HasSubstr("cannot merge " + (folder / "bad.json").string()))
        << content;
  }
  EXPECT_EQ(ScratchDirectory::read(folder / "trace.json"), "old");
}

TEST(MergeTraces, AMissingFileIsNamed) {
  const ScratchDirectory folder;
  const std::vector<std::filesystem::path> files = {folder / "gone.json"};
  EXPECT_EQ(refusal_of<TraceError>([&] { merge_traces(files, folder / "trace.json"); }),
            "cannot open " + files[0].string() + ": No such file or directory");
}

}  // namespace
}  // namespace strait::trace
