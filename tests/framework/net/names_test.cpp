// Names, run ids and keys: what is printed is read back, and nothing else is.
#include <gtest/gtest.h>

#include "framework/net/identity.h"

namespace strait::net {
namespace {

TEST(ProcessNameTest, TextIsParsedAndPrintedAlike) {
  EXPECT_EQ((ProcessName{12, 3}.text()), "12.3");
  EXPECT_EQ((ProcessName{12, 3}.describe()), "stage 12.3");
  EXPECT_EQ(ProcessName::parse("12.3"), (ProcessName{12, 3}));
  EXPECT_EQ(ProcessName::parse("coordinator"), ProcessName::coordinator());
  EXPECT_EQ(ProcessName::coordinator().describe(), "the coordinator");
  for (const char* text : {"", "1", "1.", ".1", "1.0.2", "-1.0", "1.x", "4294967296.0", " 1.0"}) {
    EXPECT_FALSE(ProcessName::parse(text)) << text;
  }
}

TEST(RunIdTest, HexIsParsedAndPrintedAlike) {
  const RunId run = RunId::random();
  EXPECT_EQ(RunId::parse(run.hex()), run);
  EXPECT_NE(RunId::random(), run);
  EXPECT_FALSE(RunId::parse(run.hex().substr(1)));
  EXPECT_FALSE(RunId::parse(run.hex() + "0"));
  EXPECT_FALSE(RunId::parse("0x112233445566778899aabbccddeeff"));
}

TEST(CurveKeysTest, PairsAreFreshAndHaveTheFormOfKeys) {
  const CurveKeyPair one = CurveKeyPair::generate();
  const CurveKeyPair other = CurveKeyPair::generate();
  EXPECT_NE(one.public_key, other.public_key);
  EXPECT_NE(one.public_key, one.secret_key);
  EXPECT_TRUE(is_curve_key(one.public_key));
  EXPECT_TRUE(is_curve_key(one.secret_key));
  EXPECT_FALSE(is_curve_key(""));
  EXPECT_FALSE(is_curve_key(one.public_key.substr(1)));
  EXPECT_FALSE(is_curve_key(std::string(40, '"')));
}

}  // namespace
}  // namespace strait::net
