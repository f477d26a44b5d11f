#include "launcher/base/text.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace strait::base {
namespace {

constexpr std::array<std::string_view, 4> kKnown = {"forward", "backward", "group", "cache"};

TEST(NearestName, FindsNameWithinOneTypingError) {
  EXPECT_EQ(nearest_name("foward", kKnown), "forward");
  EXPECT_EQ(nearest_name("gruop", kKnown), "group");
  EXPECT_EQ(nearest_name("caches", kKnown), "cache");
  EXPECT_EQ(nearest_name("backwrad", kKnown), "backward");
}

TEST(NearestName, ReturnsNothingWhenTooManyLettersDiffer) {
  EXPECT_EQ(nearest_name("temperature", kKnown), "");
  EXPECT_EQ(nearest_name("", kKnown), "");
  EXPECT_EQ(nearest_name("forward", {}), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'a'), kKnown), "");
}

TEST(PrintableText, KeepsOrdinaryText) {
  EXPECT_EQ(printable("step 1 · loss 2.5"), "step 1 · loss 2.5");
  EXPECT_EQ(printable("äß€😀"), "äß€😀");
  EXPECT_EQ(printable(""), "");
}

TEST(PrintableText, RemovesControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2Jb\rc\ad\x7f"), "a[2Jbcd");
  EXPECT_EQ(printable("a\xC2\x9B"
                      "2Jb"),
            "a2Jb");  // the one-character form of ESC [
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "ab");
}

TEST(PrintableText, KeepsLineEndsAndTabsOnlyInSeveralLines) {
  EXPECT_EQ(printable("a\nb"), "ab");
  EXPECT_EQ(printable("a\tb"), "ab");
  EXPECT_EQ(printable_lines("a\n\tb\r\n"), "a\n\tb\n");
}

TEST(PrintableText, ReplacesInvalidUtf8) {
  for (const char* wrong : {"\xe9", "\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80",
                            "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8", "\xE2\x82", "\xC2"}) {
    const std::string shown = printable(std::string("caf") + wrong + "!");
    EXPECT_EQ(shown.substr(0, 6), "caf\xEF\xBF\xBD") << shown;
    EXPECT_EQ(shown.back(), '!') << shown;
  }
}

TEST(ByteText, PicksDecimalUnit) {
  EXPECT_EQ(byte_text(980), "980 B");
  EXPECT_EQ(byte_text(98'000), "98.0 kB");
  EXPECT_EQ(byte_text(3'450'000'000), "3.45 GB");
}

TEST(ByteText, TakesAnyIntegerAndShowsNegativeOnesAsZero) {
  EXPECT_EQ(byte_text(std::int64_t{98'000}), "98.0 kB");
  EXPECT_EQ(byte_text(std::numeric_limits<std::int64_t>::min()), "0 B");
  EXPECT_EQ(byte_text(-1), "0 B");
  EXPECT_EQ(byte_text(98'000U), "98.0 kB");
  EXPECT_EQ(byte_text(98'000ULL), "98.0 kB");
}

TEST(CutToColumns, CountsCharactersNotBytes) {
  EXPECT_EQ(cut_to_columns("äöü", 2), "äö");
  EXPECT_EQ(cut_to_columns("ab", 5), "ab");
}

TEST(ShellWord, QuotesAnyTextAsOneWord) {
  EXPECT_EQ(shell_word("runs/a-1.token"), "runs/a-1.token");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's $(id)\n"), "'it'\\''s $(id)\n'");
}

TEST(Counted, OneHasNoPlural) {
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(0, "row"), "0 rows");
  EXPECT_EQ(counted(1, "micro-batch", "es"), "1 micro-batch");
  EXPECT_EQ(counted(2, "micro-batch", "es"), "2 micro-batches");
}

}  // namespace
}  // namespace strait::base
