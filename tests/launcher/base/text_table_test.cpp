#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/text.h"

namespace strait::base {
namespace {

using testing::ElementsAre;
using Kind = TextColumn::Kind;

std::vector<TextColumn> table() {
  return {{"link", {"0.0>1.0", "a"}, Kind::key},
          {"over", {"TCP", "loopback"}, Kind::text},
          {"sent", {"1 B", "12.5 MB"}, Kind::number},
          {"ratio", {"-", "8.0x"}, Kind::number}};
}

TEST(TextTable, ColumnsAreAsWideAsTheirCells) {
  EXPECT_THAT(table_lines(table()),
              ElementsAre("link     over         sent  ratio", "0.0>1.0  TCP           1 B      -",
                          "a        loopback  12.5 MB   8.0x"));
}

TEST(TextTable, WhatDoesNotFitFollowsBelowWithTheKeys) {
  EXPECT_THAT(table_lines(table(), 26),
              ElementsAre("link     over         sent", "0.0>1.0  TCP           1 B",
                          "a        loopback  12.5 MB", "link     ratio", "0.0>1.0      -",
                          "a         8.0x"));
  for (const std::size_t columns : {17U, 18U, 25U, 33U, 80U}) {
    for (const std::string& line : table_lines(table(), columns)) EXPECT_LE(line.size(), columns);
  }
}

TEST(TextTable, NarrowScreenGetsEachColumnAlone) { EXPECT_EQ(table_lines(table(), 1).size(), 9U); }

TEST(TextTable, LinesEndWithoutBlanks) {
  const std::vector<TextColumn> texts = {{"run", {"dates"}, Kind::key},
                                         {"a", {"longer"}, Kind::text}};
  EXPECT_THAT(table_lines(texts), ElementsAre("run    a", "dates  longer"));
}

TEST(TextTable, CharactersAreCountedNotBytes) {
  const std::vector<TextColumn> letters = {{"ä", {"é"}, Kind::key}, {"n", {"1"}}};
  EXPECT_EQ(table_text(letters), "  ä  n\n  é  1\n");
}

}  // namespace
}  // namespace strait::base
