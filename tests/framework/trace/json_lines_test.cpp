#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "framework/trace/trace_file.h"
#include "tests/refusal_of.h"
#include "tests/scratch_directory.h"

namespace strait::trace {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

std::vector<std::string> lines_in(const std::filesystem::path& path) {
  std::istringstream text(ScratchDirectory::read(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(JsonLines, KeepsTheOrderOfLinesAndKeys) {
  const ScratchDirectory folder;
  JsonLines file(folder / "metrics.jsonl");
  file.append({{"step", 1}, {"loss", 0.5}, {"grad_norm", 1}});
  file.append({{"step", 2}, {"loss", 0.25}});
  EXPECT_EQ(ScratchDirectory::read(folder / "metrics.jsonl"),
            "{\"step\":1,\"loss\":0.5,\"grad_norm\":1}\n{\"step\":2,\"loss\":0.25}\n");
}

TEST(JsonLines, EveryFiniteDoubleReadsBackBitForBit) {
  const ScratchDirectory folder;
  const std::uint64_t seed = 7;
  std::mt19937_64 random(seed);
  std::vector<double> written = {0.1,     -0.0,   1e-3,
                                 1.0 / 3, 5e-324, std::numeric_limits<double>::max()};
  while (written.size() < 2000) {
    const auto any = std::bit_cast<double>(random());
    if (std::isfinite(any)) written.push_back(any);
  }
  {
    JsonLines file(folder / "numbers.jsonl");
    for (const double number : written) file.append({{"x", number}});
  }
  const std::vector<std::string> lines = lines_in(folder / "numbers.jsonl");
  ASSERT_EQ(lines.size(), written.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    const double back = ordered_json::parse(lines[i])["x"].get<double>();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(back), std::bit_cast<std::uint64_t>(written[i]))
        << lines[i] << ", seed " << seed;
  }
}

TEST(JsonLines, WhatIsNoNumberIsNullAndWhatIsNoUtf8IsReplaced) {
  const ScratchDirectory folder;
  JsonLines file(folder / "odd.jsonl");
  file.append({{"loss", std::nan("")}, {"scale", std::numeric_limits<double>::infinity()}});
  file.append({{"text", "a\xffz\nb"}});
  const std::vector<std::string> lines = lines_in(folder / "odd.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], R"({"loss":null,"scale":null})");
  EXPECT_EQ(ordered_json::parse(lines[1])["text"], "a\xef\xbf\xbdz\nb");
}

TEST(JsonLines, GoesOnBehindWhatIsThereAndRemovesATornLine) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "whole.jsonl", "{\"step\":1}\n");
  const std::string half = "{\"text\":\"" + std::string(10'000, 'x');
  ScratchDirectory::write(folder / "torn.jsonl", "{\"step\":1}\n" + half);
  JsonLines(folder / "whole.jsonl").append({{"step", 2}});
  JsonLines(folder / "torn.jsonl").append({{"step", 2}});
  EXPECT_EQ(ScratchDirectory::read(folder / "whole.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(ScratchDirectory::read(folder / "torn.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
  ScratchDirectory::write(folder / "nothing.jsonl", half);
  JsonLines(folder / "nothing.jsonl").append({{"step", 2}});
  EXPECT_EQ(ScratchDirectory::read(folder / "nothing.jsonl"), "{\"step\":2}\n");
}

TEST(JsonLines, KeepsAWholeLineThatLacksItsNewline) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "lines.jsonl", "{\"step\":1}\n{\"step\":2}");
  JsonLines(folder / "lines.jsonl").append({{"step", 3}});
  EXPECT_EQ(ScratchDirectory::read(folder / "lines.jsonl"),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST(JsonLines, LinesOfManyWritersDoNotMix) {
  const ScratchDirectory folder;
  constexpr int kWriters = 4;
  constexpr int kLines = 200;
  {
    JsonLines shared(folder / "many.jsonl");
    JsonLines other(folder / "many.jsonl");  // as another process would have it open
    std::vector<std::jthread> writers;
    for (int w = 0; w < kWriters; ++w) {
      writers.emplace_back([&, w] {
        JsonLines& file = w % 2 == 0 ? shared : other;
        for (int i = 0; i < kLines; ++i) {
          file.append({{"writer", w}, {"line", i}, {"long", std::string(500, 'x')}});
        }
      });
    }
  }
  std::vector<int> next(kWriters, 0);
  for (const std::string& line : lines_in(folder / "many.jsonl")) {
    const ordered_json read = ordered_json::parse(line);
    EXPECT_EQ(read["line"], next[read["writer"].get<std::size_t>()]++);
  }
  EXPECT_EQ(next, std::vector<int>(kWriters, kLines));
}

TEST(JsonLines, NamesMissingFolder) {
  const ScratchDirectory folder;
  const std::filesystem::path path = folder / "no/such/metrics.jsonl";
  EXPECT_EQ(refusal_of<TraceError>([&] { JsonLines file(path); }),
            "cannot open " + path.string() + ": No such file or directory");
}

// A limit on the size of files stands in for a full disk: the system takes a part of the line, then
// refuses.
TEST(JsonLines, AFullDiskIsNamedAndLeavesNoHalfLine) {
  const ScratchDirectory folder;
  const std::filesystem::path path = folder / "full.jsonl";
  JsonLines file(path);
  file.append({{"step", 1}});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{16, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string refusal = refusal_of<TraceError>([&] { file.append({{"step", 2}}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(refusal, "cannot write a line to " + path.string() + ": File too large");
  file.append({{"step", 3}});
  file.append({{"step", 4}});
  EXPECT_EQ(ScratchDirectory::read(path), "{\"step\":1}\n{\"step\":3}\n{\"step\":4}\n");
}

}  // namespace
}  // namespace strait::trace
