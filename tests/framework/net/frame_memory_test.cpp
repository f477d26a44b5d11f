#include "framework/net/frame_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

namespace strait::net {
namespace {

TEST(FrameMemory, ALargeBlockIsHandedOutAgain) {
  const std::size_t bytes = (std::size_t{3} << 20) + 17;
  const std::byte* first = Frame(bytes).data();
  const Frame again(bytes);
  EXPECT_EQ(again.data(), first);
  const Frame other(bytes);
  EXPECT_NE(other.data(), first) << "two have it";
}

TEST(FrameMemory, FramesOfNearlyTheSameSizeFindEachOthersBlocks) {
  const std::byte* first = Frame(1'000'000).data();
  EXPECT_EQ(Frame(1'010'000).data(), first);
  EXPECT_EQ(Frame(990'000).data(), first);
}

TEST(FrameMemory, SmallBlocksAreLeftToTheSystem) {
  const std::size_t kept = FrameMemory::kept_bytes();
  { const Frame small(FrameMemory::kReusedBytes - 1); }
  EXPECT_EQ(FrameMemory::kept_bytes(), kept);
  { const Frame large(FrameMemory::kReusedBytes); }
  EXPECT_GE(FrameMemory::kept_bytes(), kept);
  EXPECT_LE(FrameMemory::kept_bytes(), kept + FrameMemory::kReusedBytes);
}

TEST(FrameMemory, NoMoreIsKeptThanTheBound) {
  constexpr std::size_t kBlock = std::size_t{48} << 20;
  {
    std::vector<Frame> all;
    for (std::size_t held = 0; held < 2 * FrameMemory::kKeptBytes; held += kBlock) {
      all.emplace_back();
      all.back().reserve(kBlock);  // untouched: it costs no memory
    }
  }
  EXPECT_LE(FrameMemory::kept_bytes(), FrameMemory::kKeptBytes);
  EXPECT_GT(FrameMemory::kept_bytes(), FrameMemory::kKeptBytes / 2);
}

TEST(FrameMemory, WhatIsWrittenStaysAndWhatIsGivenAValueHasIt) {
  Frame frame(5000, std::byte{7});
  EXPECT_EQ(std::count(frame.begin(), frame.end(), std::byte{7}), 5000);
  frame.resize(20'000);
  EXPECT_EQ(std::count(frame.begin(), frame.begin() + 5000, std::byte{7}), 5000);
  frame.insert(frame.end(), 3, std::byte{9});
  EXPECT_EQ(frame.size(), 20'003U);
  EXPECT_EQ(frame.back(), std::byte{9});
  const Frame copy = frame;
  EXPECT_EQ(std::memcmp(copy.data(), frame.data(), 5000), 0);
}

// Blocks of random sizes pass between threads; each is filled with its number and must still hold
// it when it is given back.
TEST(FrameMemory, NoTwoHoldersEverShareABlock) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::atomic<int> damaged = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&damaged, seed, t] {
      std::mt19937_64 random(seed + t);
      std::vector<Frame> held;
      for (int i = 0; i < 3000; ++i) {
        if (held.size() < 8 && random() % 2 == 0) {
          Frame frame(1 + random() % 40'000);
          std::fill(frame.begin(), frame.end(), static_cast<std::byte>(t * 8 + held.size()));
          held.push_back(std::move(frame));
        } else if (!held.empty()) {
          const auto value = static_cast<std::byte>(t * 8 + held.size() - 1);
          const auto right = std::count(held.back().begin(), held.back().end(), value);
          if (static_cast<std::size_t>(right) != held.back().size()) ++damaged;
          held.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
}

}  // namespace
}  // namespace strait::net
