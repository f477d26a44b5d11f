#include "framework/net/receive_assembly.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/framework/net/link_pair.h"

namespace strait::net {
namespace {

using Outcome = ReceiveAssembly::Outcome;

// A resend cuts a frame otherwise when the path's speed has changed. Whatever the cuts, nothing
// that came is asked for again.
TEST(ReceiveAssembly, TakesWhatIsNewOfFragmentsThatAreCutOtherwise) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    const Frame frame = numbered_frame(static_cast<std::uint64_t>(round), 1000);
    const FrameHash hash = hash_frame(frame);
    ReceiveAssembly assembly;
    for (std::uint32_t attempt = 0; assembly.expected().sequence == 0; ++attempt) {
      ASSERT_LT(attempt, 1000U);
      const std::size_t fragment = 1 + random() % 400;
      // From there on nothing comes in this attempt.
      const std::size_t lost = std::min<std::size_t>(random() % 1200, frame.size());
      for (std::size_t begin = 0; begin < lost; begin += fragment) {
        const std::size_t count = std::min(fragment, frame.size() - begin);
        MessageHeader header;
        header.kind = MessageKind::fragment;
        header.position = {0, begin};
        header.frame_length = frame.size();
        header.frame_hash = hash;
        header.attempt = attempt;
        const std::uint64_t before = assembly.expected().offset;
        const Outcome outcome = assembly.accept(header, std::span(frame).subspan(begin, count));
        const bool whole = begin + count == frame.size();
        const Outcome taken = whole ? Outcome::complete : Outcome::taken;
        EXPECT_EQ(outcome, begin + count > before ? taken : Outcome::repeated);
      }
    }
    EXPECT_EQ(assembly.asked_attempt(), 0U) << "asked again for what came";
    EXPECT_EQ(assembly.take(), frame);
  }
}

}  // namespace
}  // namespace strait::net
