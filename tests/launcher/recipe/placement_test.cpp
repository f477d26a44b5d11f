#include "launcher/recipe/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"

namespace strait::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

recipe::RecipeHost with_slots(std::int64_t slots) { return {.name = "a", .slots = slots}; }
const recipe::RecipeHost kOpen{.name = "b"};

TEST(Placement, SharesRestEvenlyAmongHostsWithoutSlots) {
  EXPECT_THAT(assign_hosts({kOpen, kOpen}, 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(assign_hosts({kOpen, kOpen, kOpen}, 4), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(assign_hosts({kOpen, kOpen, kOpen}, 2), ElementsAre(0, 1));
}

TEST(Placement, FillsSlotsInOrder) {
  EXPECT_THAT(assign_hosts({with_slots(1), with_slots(3)}, 3), ElementsAre(0, 1, 1));
  EXPECT_THAT(assign_hosts({with_slots(0), with_slots(3)}, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(assign_hosts({kOpen, with_slots(1), kOpen}, 5), ElementsAre(0, 0, 1, 2, 2));
}

TEST(Placement, RefusesFewerSlotsThanProcesses) {
  EXPECT_THAT(
      [] {
        assign_hosts({with_slots(1), with_slots(1)}, 3);
      },
      testing::ThrowsMessage<base::UserError>(HasSubstr("2 slots, but the run has 3 processes")));
}

TEST(Placement, AssignsEveryProcessWithinSlots) {
  for (std::size_t processes = 1; processes <= 12; ++processes) {
    for (std::int64_t a = 0; a <= 4; ++a) {
      for (std::int64_t b = 0; b <= 4; ++b) {
        const auto places = assign_hosts({with_slots(a), kOpen, with_slots(b), kOpen}, processes);
        ASSERT_EQ(places.size(), processes);
        EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
        EXPECT_LE(std::count(places.begin(), places.end(), 0U), a);
        EXPECT_LE(std::count(places.begin(), places.end(), 2U), b);
      }
    }
  }
}

}  // namespace
}  // namespace strait::plan
