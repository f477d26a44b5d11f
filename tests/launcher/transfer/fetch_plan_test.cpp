#include "launcher/transfer/fetch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "launcher/transfer/serve_queue.h"

namespace strait::transfer {
namespace {

using Time = FetchPlan::Time;
constexpr Time kStart{std::chrono::seconds(1000)};
constexpr std::chrono::milliseconds kTick{10};

const std::vector<ChunkRun> kAll = {{0, 4}};

TEST(FetchPlan, WhatFewHaveGoesFirst) {
  FetchPlan plan(ChunkSet::all(4), 1);
  plan.has(0, kAll);
  plan.has(1, std::vector<ChunkRun>{{0, 3}});
  const std::vector<SourceWindow> paces(2);
  const auto first = plan.next(0, paces, kStart);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->chunk, 3U);
  EXPECT_FALSE(first->insist);
}

TEST(FetchPlan, AChunkIsAskedOfOneAtATime) {
  FetchPlan plan(ChunkSet::all(1), 1);
  plan.has(0, std::vector<ChunkRun>{{0, 1}});
  plan.has(1, std::vector<ChunkRun>{{0, 1}});
  const std::vector<SourceWindow> paces(2);
  plan.asked(0, plan.next(0, paces, kStart)->chunk);
  EXPECT_FALSE(plan.next(1, paces, kStart).has_value());
  EXPECT_FALSE(plan.arrived(1, 0));
  plan.lost(0);
  EXPECT_TRUE(plan.next(1, paces, kStart).has_value());
}

// Sources that each leave a chunk to the other would stand still for ever.
TEST(FetchPlan, HoweverFastSourcesAreOneOfThemIsAsked) {
  std::mt19937_64 numbers(11);
  std::uniform_real_distribution<double> magnitude(-3, 1);
  for (int round = 0; round < 5000; ++round) {
    const std::size_t count = 2 + numbers() % 4;
    FetchPlan plan(ChunkSet::all(1), numbers());
    std::vector<SourceWindow> paces(count);
    for (std::size_t i = 0; i < count; ++i) {
      plan.has(i, std::vector<ChunkRun>{{0, 1}});
      if (numbers() % 2 == 0) plan.spare(i);
      paces[i].round_trip(SourceWindow::Seconds(std::pow(10, magnitude(numbers))));
    }
    bool asked = false;
    for (std::size_t i = 0; i < count; ++i) asked |= plan.next(i, paces, kStart).has_value();
    ASSERT_TRUE(asked) << "seed 11, round " << round;
  }
}

TEST(FetchPlan, WhoIsToldOfAnotherWaitsForItAndThenInsists) {
  FetchPlan plan(ChunkSet::all(1), 1);
  plan.has(0, std::vector<ChunkRun>{{0, 1}});
  plan.has(1, {});
  const std::vector<SourceWindow> paces(2);
  plan.asked(0, 0);
  EXPECT_TRUE(plan.elsewhere(0, 0, 1, kStart));
  EXPECT_FALSE(plan.next(0, paces, kStart).has_value());
  const auto later = plan.next(0, paces, kStart + FetchPlan::kPatience);
  ASSERT_TRUE(later.has_value());
  EXPECT_TRUE(later->insist);
  plan.lost(1);
  EXPECT_TRUE(plan.next(0, paces, kStart).has_value());
}

TEST(FetchPlan, TheSparedSourceIsLeftAloneUnlessItIsMuchNearer) {
  FetchPlan plan(ChunkSet::all(1), 1);
  plan.spare(0);
  plan.has(0, std::vector<ChunkRun>{{0, 1}});
  plan.has(1, std::vector<ChunkRun>{{0, 1}});
  std::vector<SourceWindow> paces(2);
  EXPECT_FALSE(plan.next(0, paces, kStart).has_value());
  EXPECT_TRUE(plan.next(1, paces, kStart).has_value());
  paces[1].round_trip(SourceWindow::Seconds(2));
  EXPECT_TRUE(plan.next(0, paces, kStart).has_value());
  EXPECT_FALSE(plan.next(1, paces, kStart).has_value());
}

TEST(FetchPlan, ChunksThatTheFileDoesNotHaveAreALie) {
  FetchPlan plan(ChunkSet::all(4), 1);
  EXPECT_FALSE(plan.has(0, std::vector<ChunkRun>{{3, 2}}));
}

TEST(SourceWindow, AsksForAsMuchAsThePathHolds) {
  SourceWindow pace;
  pace.round_trip(SourceWindow::Seconds(0.4));
  Time now = kStart;
  const auto run = [&](double bytes_per_second) {
    for (int i = 0; i < 200; ++i) {
      while (pace.room() > 0) pace.asked(now);
      // A full path brings a chunk in the time that its rate says; a path with gaps later.
      const double rate = std::min(bytes_per_second, pace.outstanding() * 1048576 / 0.4);
      now += std::chrono::duration_cast<Time::duration>(SourceWindow::Seconds(1048576 / rate));
      pace.answered(now, 1048576);
    }
    while (pace.room() > 0) pace.asked(now);
    return pace.outstanding();
  };
  const int narrow = run(1e6);
  EXPECT_EQ(narrow, SourceWindow::kLeast);
  const int wide = run(20e6);
  EXPECT_GE(wide, 20e6 * 0.4 / 1048576);
  EXPECT_LE(wide, SourceWindow::kMost);
}

// Receivers and one source with paths of equal speed in an instant world of ticks: every chunk
// takes one tick. The source's uplink carries each chunk once, whatever the seed.
struct Swarm {
  struct Receiver {
    std::unique_ptr<FetchPlan> plan;
    std::vector<SourceWindow> paces;
    ServeQueue queue;
    ChunkSet here;
  };

  Swarm(std::size_t count, std::uint32_t chunk_count, std::uint64_t seed) : chunks(chunk_count) {
    for (std::size_t i = 0; i < count; ++i) {
      receivers.push_back({std::make_unique<FetchPlan>(ChunkSet::all(chunks), seed + i),
                           std::vector<SourceWindow>(count + 1),
                           {},
                           ChunkSet(chunks)});
      FetchPlan& plan = *receivers.back().plan;
      plan.spare(count);
      plan.has(count, std::vector<ChunkRun>{{0, chunks}});
      for (std::size_t other = 0; other < count; ++other) {
        if (other != i) plan.has(other, {});
      }
    }
  }

  ServeQueue& queue_of(std::size_t source) {
    return source == receivers.size() ? source_queue : receivers[source].queue;
  }

  void ask(Time now) {
    for (std::size_t i = 0; i < receivers.size(); ++i) {
      Receiver& receiver = receivers[i];
      for (std::size_t source = 0; source <= receivers.size(); ++source) {
        while (receiver.paces[source].room() > 0) {
          const auto choice = receiver.plan->next(source, receiver.paces, now);
          if (!choice) break;
          receiver.plan->asked(source, choice->chunk);
          receiver.paces[source].asked(now);
          const ServeQueue::Wish wish{i, "x", choice->chunk, choice->insist};
          if (const auto other = queue_of(source).given_to_another(wish)) {
            receiver.plan->elsewhere(source, choice->chunk, *other, now);
            receiver.paces[source].let_go();
          } else {
            queue_of(source).push(wish);
          }
        }
      }
    }
  }

  void serve(Time now) {
    for (std::size_t source = 0; source <= receivers.size(); ++source) {
      const auto wish = queue_of(source).next();
      if (!wish) continue;
      Receiver& receiver = receivers[wish->peer];
      EXPECT_TRUE(receiver.plan->arrived(source, wish->chunk));
      EXPECT_FALSE(receiver.here.contains(wish->chunk));
      receiver.here.insert(wish->chunk);
      receiver.paces[source].answered(now, ChunkTable::kChunkBytes);
      if (source == receivers.size()) ++given_by_source;
      for (std::size_t other = 0; other < receivers.size(); ++other) {
        if (other == wish->peer) continue;
        receivers[other].plan->has(wish->peer, std::vector<ChunkRun>{{wish->chunk, 1}});
      }
    }
  }

  bool done() const {
    return std::all_of(receivers.begin(), receivers.end(),
                       [](const Receiver& receiver) { return receiver.plan->done(); });
  }

  std::uint32_t chunks;
  std::vector<Receiver> receivers;
  ServeQueue source_queue;
  std::uint32_t given_by_source = 0;
};

TEST(FetchPlan, TheSourcesUplinkCarriesEachChunkOnceAndAllIsThereSoon) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Swarm swarm(2 + seed % 5, static_cast<std::uint32_t>(20 + seed * 7), seed);
    Time now = kStart;
    std::uint32_t ticks = 0;
    for (; !swarm.done() && ticks < 10'000; ++ticks) {
      now += kTick;
      swarm.ask(now);
      swarm.serve(now);
    }
    ASSERT_TRUE(swarm.done()) << "seed " << seed;
    EXPECT_EQ(swarm.given_by_source, swarm.chunks) << "seed " << seed;
    // Alone the source would need one tick a chunk and receiver.
    EXPECT_LT(ticks, swarm.chunks * 3 / 2 + 10) << "seed " << seed;
  }
}

}  // namespace
}  // namespace strait::transfer
