
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

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
