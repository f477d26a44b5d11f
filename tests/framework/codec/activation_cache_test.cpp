#include "framework/codec/activation_cache.h"

#include <ATen/ATen.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "framework/data/sample_order.h"
#include "framework/store/store_error.h"
#include "tests/framework/codec/two_ends.h"
#include "tests/scratch_directory.h"

namespace strait::codec::activation_cache_test {
namespace {

constexpr std::int64_t kTokens = 2;
constexpr std::int64_t kWidth = 32;
constexpr std::uint64_t kSlot = 128;  // of a row in bfloat16

ActivationCacheOptions small_cache(std::int64_t memory_rows, UseOrder order, std::int64_t steps) {
  ActivationCacheOptions options;
  options.row_tokens = kTokens;
  options.width = kWidth;
  options.memory_bytes = static_cast<std::uint64_t>(memory_rows) * kSlot;
  options.order = std::move(order);
  options.last = store::Step{steps};
  return options;
}

std::set<std::int64_t> samples_in(const ActivationCache& cache) {
  std::set<std::int64_t> samples;
  for (const auto& [sample, entry] : entries_of(cache)) samples.insert(sample);
  return samples;
}

// A stage's visits of one step; the number of samples that were there.
int visit_all(ActivationCache& cache, store::Step step) {
  int hits = 0;
  cache.begin_step(step);
  for (const store::SampleId sample : cache.options().order(step)) {
    std::span<std::byte> entry = cache.find(sample);
    if (!entry.empty()) {
      ++hits;
    } else {
      entry = cache.keep(sample, kTokens);
    }
    if (!entry.empty()) std::memset(entry.data(), static_cast<int>(number(sample)), entry.size());
  }
  return hits;
}

TEST(ActivationCache, OfAResumedRunHoldsWhatItWouldHaveHeld) {
  constexpr std::int64_t kEpoch = 4;
  const UseOrder epochs = [](store::Step step) {
    return std::vector<store::SampleId>{store::SampleId{number(step) % kEpoch}};
  };
  // Of steps 3 to 5 none visits a sample again, but steps 0 and 1 are of the run as well.
  ActivationCache resumed(small_cache(8, epochs, 6));
  visit_all(resumed, store::Step{3});
  EXPECT_EQ(samples_in(resumed), (std::set<std::int64_t>{3}));
  ActivationCache once(small_cache(8, epochs, kEpoch));
  visit_all(once, store::Step{0});
  EXPECT_EQ(samples_in(once), std::set<std::int64_t>{});
}

// The rule, written down without any of its bookkeeping.
class PlainRule {
 public:
  PlainRule(std::size_t room, const UseOrder& order, std::int64_t steps) : room_(room) {
    for (std::int64_t step = 0; step < steps; ++step) order_.push_back(order(store::Step{step}));
  }

  int visit_all(std::size_t step) {
    int hits = 0;
    std::set<std::int64_t> visited;
    for (const store::SampleId id : order_[step]) {
      const std::int64_t sample = number(id);
      if (held_.contains(sample)) {
        ++hits;
      } else if (held_.size() < room_) {
        held_.insert(sample);
      } else {
        replace(sample, visited, step);
      }
      if (held_.contains(sample)) visited.insert(sample);
    }
    return hits;
  }

  const std::set<std::int64_t>& held() const { return held_; }

 private:
  std::size_t next_visit(std::int64_t sample, std::size_t after) const {
    std::size_t visit = 0;
    for (std::size_t step = after; step < order_.size(); ++step) {
      for (std::size_t i = 0; i < order_[step].size(); ++i, ++visit) {
        if (number(order_[step][i]) == sample) return visit;
      }
    }
    return SIZE_MAX;
  }

  void replace(std::int64_t newcomer, const std::set<std::int64_t>& visited, std::size_t step) {
    const std::size_t own = next_visit(newcomer, step + 1);
    std::int64_t last = -1;
    std::size_t last_visit = 0;
    for (const std::int64_t sample : held_) {
      if (visited.contains(sample)) continue;
      std::size_t in_step = 0;
      for (const auto id : order_[step]) in_step += number(id) == sample ? 1 : 0;
      // Later in this step comes before anything after it.
      const std::size_t next = in_step != 0 ? 0 : next_visit(sample, step + 1);
      if (next >= last_visit) {
        last = sample;
        last_visit = next;
      }
    }
    if (last == -1 || own >= last_visit) return;
    held_.erase(last);
    held_.insert(newcomer);
  }

  std::size_t room_;
  std::vector<std::vector<store::SampleId>> order_;
  std::set<std::int64_t> held_;
};

TEST(ActivationCache, CachesSameSamplesAsReferencePolicy) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    constexpr std::int64_t kSamples = 60;
    constexpr std::int64_t kSteps = 100;
    const UseOrder order = shuffled_epochs(kSamples, 5, seed);
    ActivationCache cache(small_cache(20, order, kSteps));
    PlainRule rule(20, order, kSteps);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const int hits = visit_all(cache, store::Step{step});
      ASSERT_EQ(hits, rule.visit_all(static_cast<std::size_t>(step)))
          << "seed " << seed << ", step " << step;
      // Samples that never return differ only in name.
      if (step < kSteps - 2 * kSamples / 5) {
        ASSERT_EQ(samples_in(cache), rule.held()) << "seed " << seed << ", step " << step;
      }
    }
  }
}

// Every sample's way from one visit to the next crosses the boundary of two epochs, so no rule has
// more hits in an epoch than entries. The least recently used rule would have a fifth of them.
TEST(ActivationCache, HitsOptimalShareWithRoomForAThirdOfTheData) {
  constexpr std::int64_t kSamples = 300;
  constexpr std::int64_t kPerStep = 10;
  constexpr std::int64_t kEpochSteps = kSamples / kPerStep;
  constexpr std::int64_t kEpochs = 12;
  constexpr std::int64_t kSteps = kEpochSteps * kEpochs + kEpochSteps / 2;
  const data::SampleOrder known({.seed = 7, .rows = kSamples, .rows_per_step = kPerStep});
  const UseOrder order = [&](store::Step step) { return known.samples(step); };
  ActivationCache one(small_cache(kSamples / 3, order, kSteps));
  ActivationCache other(small_cache(kSamples / 3, order, kSteps));
  int hits = 0;
  int last_hits = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const int here = visit_all(one, store::Step{step});
    (step < kEpochSteps * kEpochs ? hits : last_hits) += here;
    visit_all(other, store::Step{step});
    ASSERT_EQ(samples_in(one), samples_in(other)) << "step " << step;
  }
  EXPECT_EQ(hits, kSamples / 3 * (kEpochs - 1));
  // Room goes to those that still come: in half an epoch as many hits as in a whole one.
  EXPECT_EQ(last_hits, kSamples / 3);
  EXPECT_EQ(one.evictions(), other.evictions());
  EXPECT_EQ(one.bytes(), kSamples / 3 * kSlot);
}

TEST(ActivationCache, DoesNotWalkOrderWhileEverythingFits) {
  std::set<std::int64_t> asked;
  const UseOrder all = shuffled_epochs(20, 4, 9);
  ActivationCache cache(small_cache(
      20,
      [&](store::Step step) {
        asked.insert(number(step));
        return all(step);
      },
      1000));
  for (std::int64_t step = 0; step < 50; ++step) {
    cache.begin_step(store::Step{step});
    for (const store::SampleId sample : all(store::Step{step})) {
      if (cache.find(sample).empty()) cache.keep(sample, kTokens);
    }
  }
  EXPECT_EQ(cache.entries(), 20);
  // Whether anything comes back at all is known after one epoch and a visit.
  EXPECT_LE(asked.size(), 6U);
}

TEST(ActivationCache, CachesNothingIfNoSampleIsUsedAgain) {
  ActivationCache cache(small_cache(100, shuffled_epochs(40, 4, 9), 10));
  for (std::int64_t step = 0; step < 10; ++step) visit_all(cache, store::Step{step});
  EXPECT_EQ(cache.entries(), 0);
  EXPECT_EQ(cache.bytes(), 0U);
}

TEST(ActivationCache, NeverEvictsEntriesOfCurrentStep) {
  const UseOrder order = [](store::Step step) {
    std::vector<store::SampleId> visits;
    for (std::int64_t i = 0; i < 6; ++i)
      visits.push_back(store::SampleId{number(step) % 2 * 3 + i});
    return visits;
  };
  ActivationCache cache(small_cache(4, order, 100));
  for (std::int64_t step = 0; step < 20; ++step) {
    cache.begin_step(store::Step{step});
    std::set<std::int64_t> kept;
    for (const store::SampleId sample : order(store::Step{step})) {
      const bool has = !cache.find(sample).empty() || !cache.keep(sample, kTokens).empty();
      if (has) kept.insert(number(sample));
    }
    const std::set<std::int64_t> held = samples_in(cache);
    EXPECT_TRUE(std::includes(held.begin(), held.end(), kept.begin(), kept.end()));
    EXPECT_LE(held.size(), 4U);
  }
  // The other end's word counts as long as there is an entry to give up.
  cache.begin_step(store::Step{20});
  for (std::int64_t sample = 50; sample < 54; ++sample) {
    EXPECT_FALSE(cache.keep_always(store::SampleId{sample}, kTokens).empty());
  }
  EXPECT_TRUE(cache.keep_always(store::SampleId{54}, kTokens).empty());
}

TEST(ActivationCache, CachesNothingWithoutRoom) {
  ActivationCache cache(small_cache(0, shuffled_epochs(5, 5, 1), 10));
  for (std::int64_t step = 0; step < 5; ++step) EXPECT_EQ(visit_all(cache, store::Step{step}), 0);
  EXPECT_TRUE(cache.keep_always(store::SampleId{1}, kTokens).empty());
}

TEST(ActivationCache, SpillsToUnlinkedFileWhenMemoryIsFull) {
  const ScratchDirectory folder;
  ActivationCacheOptions options = small_cache(10, shuffled_epochs(60, 6, 4), 40);
  options.disk_bytes = 50 * kSlot;
  options.disk_file = folder.path() / "entries";
  ActivationCache cache(options);
  for (std::int64_t step = 0; step < 40; ++step) {
    const int hits = visit_all(cache, store::Step{step});
    EXPECT_EQ(hits, step < 10 ? 0 : 6);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
  EXPECT_EQ(cache.entries(), 60);
  for (const auto& [sample, entry] : entries_of(cache)) {
    EXPECT_EQ(entry, Entry(kSlot, static_cast<std::byte>(sample)));
  }
}

TEST(ActivationCache, ReportsFullDiskAsErrorNotSignal) {
  const ScratchDirectory folder;
  ActivationCacheOptions options = small_cache(1, shuffled_epochs(40, 4, 4), 100);
  options.disk_bytes = std::uint64_t{1} << 40;
  options.disk_file = folder.path() / "entries";
  ActivationCache cache(options);
  // A file of more than this is refused as on a full disk.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 1 << 20;
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  std::string sentence;
  try {
    visit_all(cache, store::Step{0});
  } catch (const store::StoreError& error) {
    EXPECT_EQ(error.kind(), store::StoreError::Kind::storage_full);
    sentence = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, ignored);
  EXPECT_NE(sentence.find(folder.path().string()), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("make room"), std::string::npos) << sentence;
}

TEST(ActivationCache, NamesMissingFolder) {
  ActivationCacheOptions options = small_cache(0, shuffled_epochs(40, 4, 4), 100);
  options.disk_bytes = 10 * kSlot;
  options.disk_file = "no/such/folder/entries";
  ActivationCache cache(options);
  try {
    visit_all(cache, store::Step{0});
    FAIL() << "it was made";
  } catch (const store::StoreError& error) {
    EXPECT_NE(std::string(error.what()).find("no/such/folder"), std::string::npos);
  }
}

TEST(ActivationCache, RestoresSavedCache) {
  const ScratchDirectory folder;
  ActivationCacheOptions options = small_cache(10, shuffled_epochs(60, 5, 4), 100);
  options.disk_bytes = 10 * kSlot;
  options.disk_file = folder.path() / "entries";
  ActivationCache whole(options);
  for (std::int64_t step = 0; step < 33; ++step) visit_all(whole, store::Step{step});
  whole.set_checksum(store::SampleId{*samples_in(whole).begin()}, 0xFEDCBA9876543210);
  const SavedCache saved = save(whole);

  // Other limits with room for as much are as good.
  options.memory_bytes = 16 * kSlot;
  options.disk_bytes = 4 * kSlot;
  ActivationCache resumed(options);
  restore(resumed, saved);
  EXPECT_EQ(entries_of(resumed), entries_of(whole));
  EXPECT_EQ(resumed.checksum(store::SampleId{*samples_in(whole).begin()}), 0xFEDCBA9876543210);
  for (std::int64_t step = 33; step < 80; ++step) {
    EXPECT_EQ(visit_all(resumed, store::Step{step}), visit_all(whole, store::Step{step}));
    ASSERT_EQ(entries_of(resumed), entries_of(whole)) << "step " << step;
  }
}

// A cache on disk may be larger than the memory, at the end that resumes, too.
TEST(ActivationCache, RestoresOneSlabAtATime) {
  const ScratchDirectory folder;
  ActivationCacheOptions options = small_cache(5, shuffled_epochs(60, 5, 4), 100);
  options.disk_bytes = 15 * kSlot;
  options.disk_file = folder.path() / "entries";
  ActivationCache whole(options);
  for (std::int64_t step = 0; step < 33; ++step) visit_all(whole, store::Step{step});
  const SavedCache saved = save(whole);
  ASSERT_TRUE(saved.contains("slab.1"));
  ASSERT_FALSE(saved.contains("slab.2"));

  ActivationCache resumed(options);
  int held = 0;
  int slabs = 0;
  resumed.restore("", [&](const std::string& name) {
    const at::Tensor stored = saved.at(name);
    if (!name.starts_with("slab")) return stored;
    ++slabs;
    EXPECT_EQ(held++, 0) << name << " is read while another slab is in memory";
    return at::from_blob(
        stored.mutable_data_ptr(), stored.sizes(), [&held](void*) { --held; }, stored.options());
  });
  EXPECT_EQ(slabs, 2);
  EXPECT_EQ(entries_of(resumed), entries_of(whole));
}

store::StoreError::Kind refusal(const ActivationCacheOptions& options, const SavedCache& saved) {
  ActivationCache cache(options);
  try {
    restore(cache, saved);
  } catch (const store::StoreError& error) {
    EXPECT_NE(std::string(error.what()).find("without the caches"), std::string::npos);
    return error.kind();
  }
  ADD_FAILURE() << "it was restored";
  return store::StoreError::Kind::busy;
}

TEST(ActivationCache, RefusesSavedCacheOfOtherOptions) {
  using Kind = store::StoreError::Kind;
  const ActivationCacheOptions options = small_cache(8, shuffled_epochs(10, 2, 4), 100);
  ActivationCache cache(options);
  for (std::int64_t step = 0; step < 5; ++step) visit_all(cache, store::Step{step});
  const SavedCache saved = save(cache);

  ActivationCacheOptions other = options;
  other.width = 2 * kWidth;
  EXPECT_EQ(refusal(other, saved), Kind::mismatch);
  other = options;
  other.row_tokens = 1;
  EXPECT_EQ(refusal(other, saved), Kind::mismatch);
  other = options;
  other.memory_bytes = 7 * kSlot;
  EXPECT_EQ(refusal(other, saved), Kind::mismatch);

  SavedCache wrong = saved;
  wrong["index"] = saved.at("index").clone();
  wrong["index"][3][1] = 8;
  EXPECT_EQ(refusal(options, wrong), Kind::corrupt);
  wrong["index"] = saved.at("index").clone();
  wrong["index"][3][2] = kTokens + 1;
  EXPECT_EQ(refusal(options, wrong), Kind::corrupt);
  wrong["index"] = saved.at("index").clone();
  wrong["index"][3][0] = wrong["index"][2][0].clone();
  EXPECT_EQ(refusal(options, wrong), Kind::corrupt);
  wrong["index"] = saved.at("index").to(at::kFloat);
  EXPECT_EQ(refusal(options, wrong), Kind::corrupt);
  wrong = saved;
  wrong["slab.0"] = saved.at("slab.0").slice(1, 0, 64);
  EXPECT_EQ(refusal(options, wrong), Kind::corrupt);
}

TEST(ActivationCache, AcceptsStepsThatAreNotConsecutive) {
  // A peer may say anything for a step; what is kept may be unwise then, but never wrong.
  ActivationCache cache(small_cache(5, shuffled_epochs(30, 3, 4), 1000));
  for (const std::int64_t step : {0L, 1L, 2L, 500L, 3L, 4L, 5L, 6L, 999L, 100000L, 7L, 8L}) {
    cache.begin_step(store::Step{step});
    for (std::int64_t sample = step; sample < step + 3; ++sample) {
      EXPECT_FALSE(cache.keep_always(store::SampleId{sample % 30}, kTokens).empty());
    }
    EXPECT_LE(cache.entries(), 5);
  }
}

}  // namespace
}  // namespace strait::codec::activation_cache_test
