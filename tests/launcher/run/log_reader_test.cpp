#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/run/run_status.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using testing::ElementsAre;

std::vector<std::string> texts(const std::vector<LogLine>& lines) {
  std::vector<std::string> all;
  for (const LogLine& line : lines) all.push_back(line.text);
  return all;
}

TEST(LogReader, TakesCompleteLinesOnce) {
  const ScratchDirectory folder;
  const auto file = folder / "1.0.log";
  LogReader reader(file);
  EXPECT_TRUE(reader.take(true).empty());
  ScratchDirectory::write(file, "2025-03-01 14:02:11.123 info a\nb\nc");
  const auto lines = reader.take(false);
  EXPECT_THAT(texts(lines), ElementsAre("2025-03-01 14:02:11.123 info a", "b"));
  EXPECT_EQ(lines[1].time, "2025-03-01 14:02:11.123");
  EXPECT_EQ(lines[1].process, "1.0");
  EXPECT_TRUE(reader.take(false).empty());
  ScratchDirectory::write(file, "2025-03-01 14:02:11.123 info a\nb\ncd\n");
  EXPECT_THAT(texts(reader.take(false)), ElementsAre("cd"));
}

TEST(LogReader, TakesIncompleteLineOnRequest) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "0.0.log", "no end");
  LogReader reader(folder / "0.0.log");
  EXPECT_THAT(texts(reader.take(true)), ElementsAre("no end"));
  EXPECT_TRUE(reader.take(true).empty());
}

TEST(LogReader, KeepsLinesWholeThatLieAcrossPieces) {
  const ScratchDirectory folder;
  const std::string longest(std::size_t{9} << 20U, 'x');  // of several pieces
  std::string text = longest + '\n';
  std::vector<std::string> wanted = {longest};
  for (int i = 0; i < 900'000; ++i) {
    wanted.push_back(std::to_string(i));
    text += wanted.back() + '\n';
  }
  wanted.emplace_back("no end");
  ScratchDirectory::write(folder / "0.0.log", text + "no end");
  LogReader reader(folder / "0.0.log");
  std::vector<std::string> taken;
  for (auto lines = reader.take(true); !lines.empty(); lines = reader.take(true)) {
    for (std::string& line : texts(lines)) taken.push_back(std::move(line));
  }
  EXPECT_TRUE(taken == wanted) << taken.size() << " lines for " << wanted.size();
}

TEST(LogReader, RereadsReplacedFile) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "m", "one\ntwo\n");
  LogReader reader(folder / "m");
  EXPECT_EQ(reader.take(false).size(), 2U);
  ScratchDirectory::write(folder / "m", "new\n");
  EXPECT_THAT(texts(reader.take(false)), ElementsAre("new"));
}

TEST(LogReader, SortsLinesOfSeveralLogsByTime) {
  const std::vector<LogLine> lines = {{"t1", "0.0", "a"},
                                      {"t3", "0.0", "b"},
                                      {"t3", "0.0", "c"},
                                      {"t2", "1.0", "d"},
                                      {"t3", "1.0", "e"}};
  EXPECT_THAT(texts(by_time(lines)), ElementsAre("a", "d", "b", "c", "e"));
}

TEST(LogReader, FindsLogsByProcess) {
  const ScratchDirectory folder;
  for (const char* name : {"10.0.log", "2.0.log", "2.1.log", "agent.log", "2.0.trace.json"}) {
    ScratchDirectory::write(folder / name, "");
  }
  std::vector<std::string> names;
  for (const auto& file : log_files(folder / "", "")) names.push_back(file.stem().string());
  EXPECT_THAT(names, ElementsAre("agent", "2.0", "10.0", "2.1"));
  EXPECT_EQ(log_files(folder / "", "2.1").size(), 1U);
  EXPECT_TRUE(log_files(folder / "", "9.9").empty());
}

}  // namespace
}  // namespace strait::run
