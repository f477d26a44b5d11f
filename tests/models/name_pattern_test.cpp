#include "framework/name_pattern.h"

#include <gtest/gtest.h>

namespace strait {
namespace {

TEST(NamePattern, AcceptsWhatAdapterFilesHave) {
  for (const char* pattern :
       {"q_proj", R"(.*\.c_(attn|fc))", R"(.*\.layers\.(1[0-9]|2[0-9])\..*)", R"(.*\.\d{1,2}\.mlp)",
        "a{2}b{3,4}", R"([\d]{1,}\.q)", R"(^(?!.*vision).*\.(q|v)_proj)"}) {
    EXPECT_TRUE(is_name_pattern(pattern)) << pattern;
  }
}

TEST(NamePattern, RefusesWhatCannotBeCompiledOrSearchedWithinBounds) {
  for (const std::string& pattern :
       {std::string(), std::string("("), std::string(R"((a)\1)"), std::string(1001, 'a'),
        std::string(60'000, '('), std::string("a{0,30000}"), std::string("(a?){15000}"),
        std::string("((a?){200}){200}"), std::string("a{99999999999999999999999}"),
        std::string("a{99000}"), std::string("((a?){30,}){40,}"),
        std::string("(?=.*(?=.*(?=.*x)))")}) {
    EXPECT_FALSE(is_name_pattern(pattern)) << pattern.substr(0, 40);
  }
}

// The library's search is recursive, and must not end the stack.
TEST(NamePattern, CanBeSearchedWithTheMostRepetitions) {
  const std::string pattern = "(a?){1000}";
  ASSERT_TRUE(is_name_pattern(pattern));
  ASSERT_FALSE(is_name_pattern("(a?){1001}"));
  EXPECT_TRUE(std::regex_match(std::string(100, 'a'), compile_ending(pattern)));
  EXPECT_FALSE(std::regex_match(std::string(100, 'b'), compile_ending(pattern)));
}

}  // namespace
}  // namespace strait
