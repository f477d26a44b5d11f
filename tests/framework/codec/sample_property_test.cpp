#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "kernels/row_quantization.h"
#include "tests/framework/codec/two_ends.h"

namespace strait::codec::sample_property_test {
namespace {

constexpr std::int64_t kSamples = 40;
constexpr std::int64_t kPerStep = 6;
constexpr std::int64_t kPerMessage = 2;
constexpr std::int64_t kTokens = 3;
constexpr std::int64_t kWidth = 80;  // a group and a quarter
constexpr std::int64_t kLastStep = 1 << 20;

// Everything that may happen to a boundary, drawn from one seed.
class Ordeal {
 public:
  explicit Ordeal(std::uint64_t seed) : random_(seed), seed_(seed) {
    cache_.row_tokens = kTokens;
    cache_.width = kWidth;
    const std::uint64_t slot =
        (static_cast<std::uint64_t>(kernels::entry_bytes(kTokens, kWidth)) + 63) / 64 * 64;
    cache_.memory_bytes = 9 * slot;
    cache_.disk_bytes = 8 * slot;
    cache_.disk_file =
        std::filesystem::path(testing::TempDir()) / ("ordeal-" + std::to_string(::getpid()));
    cache_.order = shuffled_epochs(kSamples, kPerStep, seed);
    cache_.last = store::Step{kLastStep};
    ends_ = make_ends();
  }

  void run(int messages) {
    while (messages_ < messages) {
      const std::vector<store::SampleId> samples = cache_.order(store::Step{step_});
      std::int32_t micro_batch = 0;
      bool died = false;
      for (std::size_t i = 0; i < samples.size() && !died; i += kPerMessage, ++micro_batch) {
        std::vector<std::int64_t> rows;
        for (std::size_t j = i; j < std::min(samples.size(), i + kPerMessage); ++j) {
          rows.push_back(number(samples[j]));
        }
        died = one_message(batch_for(rows, micro_batch));
        if (testing::Test::HasFatalFailure()) return;
      }
      if (!died) ++step_;
      if (!died && chance(60)) take_snapshot();
    }
  }

  std::uint64_t evictions = 0;
  std::uint64_t resends = 0;
  int deaths = 0;
  int drops = 0;
  int flips = 0;

 private:
  bool chance(std::uint64_t one_in) { return random_() % one_in == 0; }

  std::unique_ptr<TwoEnds> make_ends() {
    SampleEncoderOptions options;
    options.group = 32 << (random_() % 3);
    options.direction = direction_ = chance(2) ? Direction::forward : Direction::backward;
    options.choose = [this](store::Step, const Traffic&) {
      if (!chance(4)) return choice_;
      const auto encoding = static_cast<Choice::Encoding>(chance(3) ? random_() % 2 : 2);
      choice_ = {encoding, static_cast<int>(2 + random_() % 7), chance(3) ? 16 : 8};
      // A gradient that is sent as a value always replaces its entry.
      if (direction_ == Direction::backward) choice_.first_bits = 8;
      return choice_;
    };
    return std::make_unique<TwoEnds>(options, cache_);
  }

  Batch batch_for(const std::vector<std::int64_t>& rows, std::int32_t micro_batch) {
    Batch batch{full_rows(store::Step{step_}, micro_batch, kTokens, kWidth, rows), {}};
    batch.values = at::zeros({std::ssize(rows), kTokens, kWidth});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto sample = static_cast<std::uint64_t>(rows[i]);
      // What a sample is like, and how far the weights have moved. Only gradients that moved far
      // are sent without their base.
      const bool far = direction_ == Direction::backward && chance(4);
      at::Tensor value = random_values({kTokens, kWidth}, sample) +
                         (far ? 2 : 0.2) * random_values({kTokens, kWidth}, random_());
      if (chance(50)) value[1][5] = std::numeric_limits<float>::quiet_NaN();
      if (chance(50)) value[0].zero_();
      batch.values[static_cast<std::int64_t>(i)] = value;
    }
    return batch;
  }

  void take_snapshot() {
    snapshot_ = {save(*ends_->encoder().cache()), save(*ends_->decoder().cache())};
    snapshot_step_ = step_;
    snapshot_differs_ = differs_;
  }

  // The run goes on from the last checkpoint under a new generation, with its caches or without.
  void begin_generation() {
    ++deaths;
    ends_ = make_ends();
    step_ = snapshot_step_;
    differs_.clear();
    if (snapshot_.first.empty() || chance(2)) {
      ++drops;
      return;
    }
    restore(*ends_->encoder().cache(), snapshot_.first);
    restore(*ends_->decoder().cache(), snapshot_.second);
    differs_ = snapshot_differs_;
  }

  // True: the link died in it.
  bool one_message(const Batch& batch) {
    ++messages_;
    if (chance(150)) {
      ends_->lose(batch);
      begin_generation();
      return true;
    }
    if (chance(20)) {
      const auto sample = static_cast<std::int64_t>(random_() % kSamples);
      const bool sender = chance(2);
      SampleEncoder& encoder = ends_->encoder();
      ActivationCache& cache = sender ? *encoder.cache() : *ends_->decoder().cache();
      if (flip_bit(cache, sample, random_())) {
        differs_.insert(sample);
        ++flips;
      }
    }
    const std::uint64_t before = ends_->decoder().traffic().resends;
    const at::Tensor values = ends_->pass(batch);
    resends += ends_->decoder().traffic().resends - before;
    check(batch, values);
    return false;
  }

  void check(const Batch& batch, const at::Tensor& values) {
    const Entries sent = entries_of(*ends_->encoder().cache());
    const Entries received = entries_of(*ends_->decoder().cache());
    ASSERT_EQ(sent.size(), received.size()) << "seed " << seed_ << ", message " << messages_;
    const bool remembered = choice_.encoding == Choice::Encoding::delta;
    for (const Row& row : batch.header.rows.rows) {
      if (remembered) differs_.erase(number(row.sample));
    }
    for (const auto& [sample, entry] : sent) {
      ASSERT_TRUE(received.contains(sample)) << "seed " << seed_ << ", message " << messages_;
      if (differs_.contains(sample)) continue;
      ASSERT_EQ(entry, received.at(sample))
          << "seed " << seed_ << ", message " << messages_ << ", sample " << sample;
    }
    std::erase_if(differs_, [&](std::int64_t sample) { return !sent.contains(sample); });
    if (remembered) check_values(batch, values, received);
    const std::uint64_t now = ends_->encoder().traffic().evictions;
    ASSERT_EQ(now, ends_->decoder().traffic().evictions);
    evictions += now - std::min(now, last_evictions_);
    last_evictions_ = now;
  }

  // Training sees what the entry holds, or NaN where the sender's value was none.
  void check_values(const Batch& batch, const at::Tensor& values, const Entries& entries) {
    for (std::size_t i = 0; i < batch.header.rows.rows.size(); ++i) {
      const auto found = entries.find(number(batch.header.rows.rows[i].sample));
      if (found == entries.end()) continue;
      const at::Tensor expected = at::empty({kTokens, kWidth});
      kernels::load_entry(found->second.data(), {expected.mutable_data_ptr(),
                                                 kernels::Element::float32, kTokens, kWidth});
      const at::Tensor value = values[static_cast<std::int64_t>(i)];
      const at::Tensor as_sent = batch.values[static_cast<std::int64_t>(i)];
      const at::Tensor refused = value.isnan();
      if (!as_sent.isnan().any().item<bool>()) {
        ASSERT_FALSE(refused.any().item<bool>()) << "seed " << seed_ << ", message " << messages_;
        ASSERT_LE((value - as_sent).norm().item<double>(), as_sent.norm().item<double>())
            << "seed " << seed_ << ", message " << messages_;
      }
      ASSERT_TRUE(at::equal(at::where(refused, expected, value), expected))
          << "seed " << seed_ << ", message " << messages_;
    }
  }

  std::mt19937_64 random_;
  std::uint64_t seed_;
  ActivationCacheOptions cache_;
  Choice choice_;
  Direction direction_ = Direction::forward;
  std::unique_ptr<TwoEnds> ends_;
  std::int64_t step_ = 0;
  int messages_ = 0;
  std::set<std::int64_t> differs_;  // samples with a bit turned over, not visited since
  std::uint64_t last_evictions_ = 0;
  std::pair<SavedCache, SavedCache> snapshot_;
  std::int64_t snapshot_step_ = 0;
  std::set<std::int64_t> snapshot_differs_;
};

TEST(BothEnds, HoldSameBitsAfterTenThousandMessages) {
  const std::uint64_t seed = 20260101;
  Ordeal ordeal(seed);
  ordeal.run(10000);
  EXPECT_GT(ordeal.evictions, 500U) << "seed " << seed;
  EXPECT_GT(ordeal.deaths, 30) << "seed " << seed;
  EXPECT_GT(ordeal.drops, 10) << "seed " << seed;
  EXPECT_GT(ordeal.deaths - ordeal.drops, 10) << "seed " << seed;
  EXPECT_GT(ordeal.flips, 100) << "seed " << seed;
  EXPECT_GT(ordeal.resends, 50U) << "seed " << seed;
}

}  // namespace
}  // namespace strait::codec::sample_property_test
