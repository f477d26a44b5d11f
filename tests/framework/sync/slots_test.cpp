#include "framework/sync/slots.h"

#include <gtest/gtest.h>

#include "framework/sync/membership.h"

namespace strait::sync {
namespace {

// A block of kGrain values is one cache line then, and not two.
TEST(Slots, BeginAtCacheLines) {
  const Layout layout({{.name = "w", .shape = {300, 7}}});
  std::vector<float> memory(static_cast<std::size_t>(layout.size()));
  const auto offset = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 64; };
  for (int i = 0; i < 20; ++i) {
    const Slots slots(layout, {memory, memory, memory, memory},
                      {{.name = "wide"}, {.name = "narrow", .width = SlotNeed::Width::bfloat16}});
    EXPECT_EQ(offset(slots.values("wide").data()), 0U);
    EXPECT_EQ(offset(slots.bytes("narrow", {0, layout.size()}).data()), 0U);
  }
}

TEST(Rejoin, GetsModelAndSharedSlotsFromFirstMemberThatHasThem) {
  const std::vector<SlotNeed> needs = {{.name = "residual"},
                                       {.name = "outer", .shared = true},
                                       {.name = "reference", .shared = true}};
  using Names = std::vector<std::string>;
  EXPECT_EQ(shared_slots(needs, kWeights), (Names{kWeights, "outer", "reference"}));
  EXPECT_EQ(shared_slots(needs, "reference"), (Names{"reference", "outer"}));
  Membership members;
  members.members = {1, 2, 4};
  EXPECT_EQ(rejoin_sender(members, {7, 4}), 1U);
  EXPECT_EQ(rejoin_sender(members, {7, 1}), 2U);
}

TEST(Slots, RunWorkOnceAndOnTheCallersThreadByDefault) {
  const Layout layout({{.name = "w", .shape = {16}}});
  std::vector<float> memory(16);
  Slots slots(layout, {memory, memory, memory, memory}, {});
  const auto done = [&] {
    std::vector<int> times(10);
    slots.spread(10, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) ++times[static_cast<std::size_t>(i)];
    });
    return times;
  };
  EXPECT_EQ(done(), std::vector<int>(10, 1));
  slots.spread_by([](std::int64_t count, const Work& work) {
    work(count / 2, count);
    work(0, count / 2);
  });
  EXPECT_EQ(done(), std::vector<int>(10, 1));
}

}  // namespace
}  // namespace strait::sync
