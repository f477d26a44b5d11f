#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/codec/codecs.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/recipe/recipe_keys.h"
#include "stages/partition.h"
#include "tests/refusal_of.h"

namespace strait::plugin {
namespace {

using testing::Contains;
using testing::HasSubstr;

partition::Assignment nothing(const partition::Question&) { return {}; }

std::string refusal(const std::string& name) {
  return refusal_of<std::invalid_argument>([&] { OfferedParts().partition(name, nothing); });
}

TEST(OfferedParts, AreAddedToCatalogues) {
  // The process keeps what it was offered, also where this test is repeated in it.
  static int times = 0;
  const std::string one = "of_a_test." + std::to_string(++times);
  const std::string other = one + ".2";
  OfferedParts parts;
  parts.partition(one, nothing);
  parts.partition(other, nothing);
  EXPECT_THAT(parts.partitions(), testing::ElementsAre(one, other));
  EXPECT_THAT(stages::partitions().names(), Contains(one));
  EXPECT_EQ(stages::partitions().names().front(), "balanced");
  EXPECT_THAT(refusal(one), HasSubstr("called \"" + one + "\" already"));
}

TEST(OfferedParts, RefusesInvalidAndTakenNames) {
  EXPECT_THAT(refusal("balanced"), HasSubstr("there is a partition called \"balanced\" already"));
  for (const char* name : {"", "two words", "a#b", "a/b", "\"", "é"}) {
    EXPECT_THAT(refusal(name), HasSubstr("is not a name for a partition")) << name;
  }
  EXPECT_THAT(refusal(std::string(65, 'a')), HasSubstr("1 to 64 letters"));
}

TEST(PartNames, ContainBuiltInParts) {
  EXPECT_THAT(recipe::part_names(recipe::PartKind::schedule),
              testing::ElementsAre("gpipe", "1f1b", "zero_bubble", "interleaved"));
  EXPECT_THAT(recipe::part_names(recipe::PartKind::codec),
              testing::ElementsAre("raw", "fixed", "delta", "transform", "auto"));
  EXPECT_THAT(recipe::part_names(recipe::PartKind::sync_method), Contains("cocktail"));
}

// What [codec] says of gradients is decided by what the codec can.
TEST(PartNames, EveryBuiltInCodecSendsGradientsAndDeltaCachesThem) {
  for (const codec::CodecOffer& codec : codec::codecs().all()) {
    EXPECT_TRUE(codec.for_gradients);
    EXPECT_EQ(codec.gradient_caching == codec::CodecOffer::Caching::always, codec.name == "delta");
  }
}

}  // namespace
}  // namespace strait::plugin
