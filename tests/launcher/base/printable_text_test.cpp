#include "launcher/base/printable_text.h"

#include <gtest/gtest.h>

namespace strait::base {
namespace {

TEST(PrintableText, LeavesOrdinaryTextAsItIs) {
  EXPECT_EQ(printable("step 1 · loss 2.5"), "step 1 · loss 2.5");
  EXPECT_EQ(printable("äß€😀"), "äß€😀");
  EXPECT_EQ(printable(""), "");
}

TEST(PrintableText, LetsNothingThroughThatSteersATerminal) {
  EXPECT_EQ(printable("a\x1b[2Jb\rc\ad\x7f"), "a[2Jbcd");
  EXPECT_EQ(printable("a\xC2\x9B"
                      "2Jb"),
            "a2Jb");  // the one-character form of ESC [
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "ab");
}

TEST(PrintableText, KeepsLineEndsOnlyWhereThereMayBeSeveralLines) {
  EXPECT_EQ(printable("a\nb"), "ab");
  EXPECT_EQ(printable_lines("a\n\tb\n"), "a\nb\n");
}

TEST(PrintableText, ShowsThatSomethingWasNoUtf8) {
  for (const char* wrong : {"\xe9", "\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80",
                            "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8", "\xE2\x82", "\xC2"}) {
    const std::string shown = printable(std::string("caf") + wrong + "!");
    EXPECT_EQ(shown.substr(0, 6), "caf\xEF\xBF\xBD") << shown;
    EXPECT_EQ(shown.back(), '!') << shown;
  }
}

}  // namespace
}  // namespace strait::base
