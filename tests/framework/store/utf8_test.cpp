#include "framework/utf8.h"

#include <gtest/gtest.h>

#include "framework/json_depth.h"

namespace strait {
namespace {

TEST(Utf8, RefusesWhatIsNoCharacter) {
  for (const char* text : {"", "a", "h\xc3\xa9llo", "\xe2\x82\xac", "\xf0\x9f\x99\x82"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  for (const char* text : {"\xe9", "caf\xe9.txt", "\xc0\x80", "\xed\xa0\x80", "\xe0\x80\x80",
                           "\xf4\x90\x80\x80", "\xf0\x9f\x99"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

TEST(JsonDepth, CountsListsAndObjectsOutsideOfStrings) {
  EXPECT_EQ(json_depth("7"), 0U);
  EXPECT_EQ(json_depth(R"({"a": [[1], {"b": {}}]})"), 4U);
  EXPECT_EQ(json_depth(R"({"a[[[": "{\"[["})"), 1U);
  EXPECT_EQ(json_depth("]]]][["), 2U);
}

}  // namespace
}  // namespace strait
