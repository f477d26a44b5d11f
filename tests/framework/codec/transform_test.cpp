#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "framework/codec/choice.h"
#include "framework/codec/transform_decoder.h"
#include "framework/codec/transform_encoder.h"
#include "tests/framework/codec/two_ends.h"

// The laws of codec `transform`.
namespace strait::codec::transform_test {
namespace {

constexpr std::int64_t kWidth = 48;
constexpr std::int64_t kTokens = 32;   // of a row
constexpr std::int64_t kSamples = 12;  // in steps of 4: three steps are an epoch
constexpr std::int64_t kPerStep = 4;

ActivationCacheOptions cache_options(Direction direction) {
  ActivationCacheOptions options;
  options.row_tokens = kTokens;
  options.width = kWidth;
  if (direction == Direction::forward) options.memory_bytes = 1 << 20;
  options.order = shuffled_epochs(kSamples, kPerStep, 1);
  options.last = store::Step{1000};
  return options;
}

// Both ends of one direction.
struct Ends {
  explicit Ends(Direction direction, int bits = 6, int first_bits = 6)
      : encoder({direction, bits, first_bits, 64, 7}, make_cache(direction)),
        decoder(at::kFloat, make_cache(direction)) {}

  static std::unique_ptr<ActivationCache> make_cache(Direction direction) {
    return std::make_unique<ActivationCache>(cache_options(direction));
  }
  void expect_same_entries() {
    EXPECT_EQ(entries_of(*encoder.cache()), entries_of(*decoder.cache()));
  }
  int generation() {
    return static_cast<int>(encoder.cache()->state().at(0)[0].item<std::int64_t>());
  }

  TransformEncoder encoder;
  TransformDecoder decoder;
};

// Values whose energy is in few directions, and that have a mean: [rows, tokens, width].
at::Tensor correlated(std::int64_t rows, std::uint64_t seed) {
  const at::Tensor mixed = random_values({kWidth, kWidth}, 1);
  const at::Tensor sizes = at::exp2(-at::arange(kWidth) / 4.0);
  return at::matmul(random_values({rows, kTokens, kWidth}, seed) * sizes, mixed) +
         random_values({kWidth}, 2);
}

// The activations of a step: each sample's own, and a change that is a tenth of it.
Batch activations(std::int64_t step) {
  std::vector<std::int64_t> samples;
  std::vector<at::Tensor> rows;
  for (const store::SampleId sample : shuffled_epochs(kSamples, kPerStep, 1)(store::Step{step})) {
    samples.push_back(number(sample));
    const auto own = static_cast<std::uint64_t>(100 + number(sample));
    const auto now = static_cast<std::uint64_t>(1000 * (step + 1) + number(sample));
    rows.push_back(correlated(1, own) + 0.1 * correlated(1, now));
  }
  return {full_rows(store::Step{step}, 0, kTokens, kWidth, samples), at::cat(rows)};
}

Batch gradients(std::int64_t step, std::uint64_t seed) {
  Batch batch{full_rows(store::Step{step}, 0, kTokens, kWidth, {0, 1, 2, 3}), correlated(4, seed)};
  batch.header.kind = Kind::backward;
  return batch;
}

double energy(const at::Tensor& values) { return values.square().sum().item<double>(); }

double error_of(const Passed& passed, const Batch& batch) {
  return energy(passed.values - batch.values) / energy(batch.values);
}

std::size_t bytes_in_groups(const Batch& batch, int bits) {
  const bool forward = batch.header.kind == Kind::forward;
  SampleEncoderOptions options;
  options.choice = {Choice::Encoding::fixed, bits, bits};
  options.direction = forward ? Direction::forward : Direction::backward;
  net::Frame frame;
  SampleEncoder(options, nullptr).encode(batch.header, batch.values, frame);
  return frame.size();
}

class Transform : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_F(Transform, BothEndsHoldSameEntriesThroughChangesOfBasis) {
  Ends ends(Direction::forward);
  for (std::int64_t step = 0; step < 20; ++step) {
    pass(ends.encoder, ends.decoder, activations(step));
    ends.expect_same_entries();
  }
  EXPECT_GT(ends.generation(), 1) << "no basis was learnt";
  EXPECT_EQ(entries_of(*ends.encoder.cache()).size(), kSamples);
  const Traffic sent = ends.encoder.traffic();
  EXPECT_GT(sent.hits, 0U);
  // Entries of an older basis are not used.
  EXPECT_GT(sent.cache_misses, static_cast<std::uint64_t>(kSamples));
  EXPECT_EQ(sent.resends, 0U);
  EXPECT_EQ(ends.decoder.traffic().hits, sent.hits);
}

TEST_F(Transform, ErrorIsAsWantedWithHalfTheBytesOfGroups) {
  for (const int bits : {3, 4, 6}) {
    Ends ends(Direction::forward, bits, bits);
    const double wanted = std::pow(relative_error(bits), 2);
    for (std::int64_t step = 0; step < 20; ++step) {
      const Batch batch = activations(step);
      const Passed passed = pass(ends.encoder, ends.decoder, batch);
      EXPECT_LT(error_of(passed, batch), 1.15 * wanted) << bits << " bits, step " << step;
      if (step < 17) continue;
      EXPECT_LT(passed.payload.size(), bytes_in_groups(batch, bits) / 2) << bits << " bits";
    }
  }
}

// Its unit is far too coarse for the values that follow, which go in groups until a finer one.
TEST_F(Transform, SpikeIsForgotten) {
  Ends ends(Direction::forward, 4, 4);
  for (std::int64_t step = 0; step < 130; ++step) {
    Batch batch = activations(step);
    if (step == 0) batch.values = batch.values * 1e3;
    const Passed passed = pass(ends.encoder, ends.decoder, batch);
    EXPECT_LT(error_of(passed, batch), 2 * std::pow(relative_error(4), 2)) << "step " << step;
    ends.expect_same_entries();
    if (step >= 126) {
      EXPECT_LT(passed.payload.size(), bytes_in_groups(batch, 4) / 2) << "step " << step;
    }
  }
}

TEST_F(Transform, UnchangedRowsCostNextToNothing) {
  Ends ends(Direction::forward);
  Passed passed;
  for (std::int64_t step = 0; step < 12; ++step) {
    Batch batch = activations(step);
    batch.values = at::cat([&] {
      std::vector<at::Tensor> rows;
      for (const Row& row : batch.header.rows.rows) {
        rows.push_back(correlated(1, static_cast<std::uint64_t>(100 + number(row.sample))));
      }
      return rows;
    }());
    passed = pass(ends.encoder, ends.decoder, batch);
  }
  EXPECT_LT(passed.payload.size(), bytes_in_groups(activations(0), 6) / 20);
}

TEST_F(Transform, GradientsHaveNoBiasInAnyDirection) {
  constexpr int kDraws = 100;
  for (const int bits : {2, 4}) {
    Ends ends(Direction::backward, bits);
    for (std::int64_t step = 0; step < 9; ++step) {
      pass(ends.encoder, ends.decoder, gradients(step, 50 + static_cast<std::uint64_t>(step)));
    }
    EXPECT_GT(ends.generation(), 0) << "no basis was learnt";
    Batch batch = gradients(9, 49);
    at::Tensor sum = at::zeros_like(batch.values);
    double along = 0;
    double error = 0;
    for (batch.header.micro_batch = 0; batch.header.micro_batch < kDraws;
         ++batch.header.micro_batch) {
      const Passed passed = pass(ends.encoder, ends.decoder, batch);
      sum += passed.values - batch.values;
      error += energy(passed.values - batch.values) / kDraws;
      along += (passed.values * batch.values).sum().item<double>() / kDraws;
    }
    EXPECT_NEAR(error / energy(batch.values) / std::pow(relative_error(bits), 2), 1, 0.1);
    // The mean of errors that have none is as small as their number makes it.
    EXPECT_LT(energy(sum / kDraws), 1.2 * error / kDraws) << bits << " bits";
    const double spread = std::sqrt(error / energy(batch.values) / kDraws);
    EXPECT_NEAR(along / energy(batch.values), 1, 5 * spread);
    // The weakest direction: a value there is far below a step.
    const at::Tensor mixed = random_values({kWidth, kWidth}, 1);
    const at::Tensor weak = at::linalg_inv(mixed).select(1, kWidth - 1);
    const at::Tensor means = at::matmul(sum / kDraws, weak / weak.norm()).flatten();
    const double of_one = error / static_cast<double>(batch.values.numel()) / kDraws;
    EXPECT_LT(energy(means), 2 * of_one * static_cast<double>(means.numel()));
  }
}

TEST_F(Transform, NeverTakesMoreBytesThanGroups) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    Ends ends(direction, 4, 4);
    for (std::int64_t step = 0; step < 6; ++step) {
      Batch batch = direction == Direction::forward ? activations(step) : gradients(step, 1);
      const bool white = step % 2 == 0;
      if (white) batch.values = random_values(batch.values.sizes(), 30 + step);
      // One value far from the others takes all levels.
      if (step == 4) batch.values[0][0][0] = 1e30F;
      const Passed passed = pass(ends.encoder, ends.decoder, batch);
      const bool has_basis = passed.payload.at(0) == std::byte{kTransformFormat} &&
                             passed.payload.at(1) != std::byte{0};
      const std::size_t basis = has_basis ? ends.encoder.cache()->state().at(1).nbytes() : 0;
      EXPECT_LE(passed.payload.size() - basis, bytes_in_groups(batch, 4)) << step;
      ends.expect_same_entries();
    }
  }
}

TEST_F(Transform, ValuesThatAreNotFiniteGoInGroupsAndChangeNothing) {
  Ends ends(Direction::forward);
  Batch batch = activations(0);
  pass(ends.encoder, ends.decoder, batch);
  const Entries before = entries_of(*ends.encoder.cache());
  Batch bad = activations(1);
  bad.values[1][2][3] = std::nanf("");
  EXPECT_TRUE(pass(ends.encoder, ends.decoder, bad).values[1].isnan().any().item<bool>());
  EXPECT_EQ(ends.encoder.traffic().refused_rows, 1U);
  EXPECT_EQ(entries_of(*ends.encoder.cache()), before);
  batch = activations(2);
  EXPECT_LT(error_of(pass(ends.encoder, ends.decoder, batch), batch), 0.01);
  ends.expect_same_entries();
}

TEST_F(Transform, RestoredEndsGoOnWithSameBytes) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const auto batch = [&](std::int64_t step) {
      return direction == Direction::forward ? activations(step)
                                             : gradients(step, static_cast<std::uint64_t>(step));
    };
    Ends whole(direction);
    for (std::int64_t step = 0; step < 15; ++step) pass(whole.encoder, whole.decoder, batch(step));
    Ends resumed(direction);
    restore(*resumed.encoder.cache(), save(*whole.encoder.cache()));
    restore(*resumed.decoder.cache(), save(*whole.decoder.cache()));
    for (std::int64_t step = 15; step < 20; ++step) {
      const Passed one = pass(whole.encoder, whole.decoder, batch(step));
      const Passed other = pass(resumed.encoder, resumed.decoder, batch(step));
      ASSERT_EQ(one.payload, other.payload) << "step " << step;
      ASSERT_TRUE(at::equal(one.values, other.values)) << "step " << step;
    }
    resumed.expect_same_entries();
  }
}

// A message that goes in groups leaves a new basis to a later one, also where the run resumes.
TEST_F(Transform, SavedStateSaysWhetherBasisWasSent) {
  const std::unique_ptr<ActivationCache> cache = Ends::make_cache(Direction::forward);
  TransformState state = TransformState::load(*cache);
  EXPECT_TRUE(state.sent);
  state.begin_generation(first_basis(kWidth));
  state.save_to(*cache);
  EXPECT_FALSE(TransformState::load(*cache).sent);
  EXPECT_EQ(TransformState::load(*cache).generation, 1);
}

TEST_F(Transform, TurnedBitsAreFoundAtBothEndsAndHealed) {
  Ends healthy(Direction::forward);
  Ends hurt(Direction::forward);
  for (std::int64_t step = 0; step < 15; ++step) {
    const Batch batch = activations(step);
    const std::int64_t sample = number(batch.header.rows.rows[1].sample);
    const bool turned = step == 14 && flip_bit(*hurt.decoder.cache(), sample, 99);
    const Passed right = pass(healthy.encoder, healthy.decoder, batch);
    const Passed healed = pass(hurt.encoder, hurt.decoder, batch);
    EXPECT_EQ(healed.missing, turned ? 1U : 0U);
    EXPECT_TRUE(at::equal(right.values, healed.values)) << step;
  }
  hurt.expect_same_entries();
  EXPECT_EQ(hurt.encoder.traffic().resends, 1U);
  const Batch batch = activations(15);
  ASSERT_TRUE(flip_bit(*hurt.encoder.cache(), number(batch.header.rows.rows[0].sample), 5));
  EXPECT_LT(error_of(pass(hurt.encoder, hurt.decoder, batch), batch), 0.01);
  EXPECT_EQ(hurt.encoder.traffic().resends, 2U);
  hurt.expect_same_entries();
}

TEST_F(Transform, HostilePayloadsAreRefusedWithASentence) {
  Ends ends(Direction::forward);
  const Entry payload = pass(ends.encoder, ends.decoder, activations(0)).payload;
  const TensorHeader header = activations(0).header;
  std::size_t refused = 0;
  for (std::size_t cut = 0; cut < payload.size(); cut += 7) {
    Ends fresh(Direction::forward);
    EXPECT_THROW(fresh.decoder.decode(header, std::span(payload).first(cut)), CodecError) << cut;
  }
  for (std::size_t at = 0; at < payload.size(); at += 5) {
    Entry changed = payload;
    changed[at] ^= std::byte{0x41};
    Ends fresh(Direction::forward);
    try {
      fresh.decoder.decode(header, changed);
    } catch (const CodecError& error) {
      ++refused;
      EXPECT_THAT(error.what(), testing::HasSubstr(" "));
    }
  }
  EXPECT_GT(refused, 0U);
  // A message that needs a basis which this end never got.
  const Entry later = pass(ends.encoder, ends.decoder, activations(1)).payload;
  Ends fresh(Direction::forward);
  try {
    fresh.decoder.decode(activations(1).header, later);
    FAIL() << "an unknown basis was used";
  } catch (const CodecError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("resume all processes from a checkpoint"));
  }
}

}  // namespace
}  // namespace strait::codec::transform_test
