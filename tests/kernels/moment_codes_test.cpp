#include "kernels/moment_codes.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "kernels/random.h"

namespace strait::kernels::moment_codes_test {
namespace {

constexpr std::int64_t kValues = 5 * kMomentBlock + 17;

CodedMoment empty_moment(at::ScalarType type, std::int64_t values = kValues) {
  CodedMoment moment{at::zeros({values}, type), {}};
  if (type == at::kByte) moment.sizes = at::zeros({moment_blocks(values)});
  return moment;
}

// Over many powers of ten, with zeros; second moments are squares.
at::Tensor example(MomentKind kind) {
  at::Generator generator = keyed_generator(3, at::kCPU);
  at::Tensor values = at::randn({kValues}, generator) * at::logspace(-5, 3, kValues);
  values.index_put_({at::arange(0, kValues, 7)}, at::zeros({}));
  return kind == MomentKind::second ? values.square() : values;
}

at::Tensor coded_and_decoded(const at::Tensor& values, MomentKind kind, at::ScalarType type,
                             std::uint64_t key) {
  const CodedMoment coded = empty_moment(type, values.numel());
  encode_moment(values, kind, key, coded);
  at::Tensor decoded = at::empty_like(values);
  decode_moment(coded, kind, decoded);
  return decoded;
}

// What an update uses: a second moment's root.
at::Tensor used(const at::Tensor& values, MomentKind kind) {
  return kind == MomentKind::second ? values.sqrt() : values;
}

// The largest magnitude of each value's block.
at::Tensor block_sizes(const at::Tensor& values) {
  const std::int64_t blocks = moment_blocks(values.numel());
  const at::Tensor padded =
      at::constant_pad_nd(values.abs(), {0, blocks * kMomentBlock - values.numel()});
  return padded.view({blocks, kMomentBlock})
      .amax(1)
      .repeat_interleave(kMomentBlock)
      .narrow(0, 0, values.numel());
}

class MomentCodes : public testing::TestWithParam<std::tuple<at::ScalarType, MomentKind>> {};

TEST_P(MomentCodes, AreRightInTheMean) {
  const auto [type, kind] = GetParam();
  const at::Tensor values = example(kind);
  constexpr int kDraws = 400;
  at::Tensor sum = at::zeros({kValues}, at::kDouble);
  for (int draw = 0; draw < kDraws; ++draw) {
    const at::Tensor decoded =
        coded_and_decoded(values, kind, type, static_cast<std::uint64_t>(draw));
    // bfloat16 rounds the second moment itself, int8 its root.
    sum += type == at::kByte ? used(decoded, kind) : decoded;
  }
  const at::Tensor exact = type == at::kByte ? used(values, kind) : values;
  const at::Tensor apart = (sum / kDraws - exact).abs();
  // Six standard errors of a table's widest step, and its end: a block's size has no negative code.
  const at::Tensor allowed = 0.004 * block_sizes(exact) + 0.008 * exact.abs();
  EXPECT_LE((apart - allowed).max().item<double>(), 0);
}

TEST_P(MomentCodes, KeepSizesAndZeros) {
  const auto [type, kind] = GetParam();
  const at::Tensor values = example(kind);
  const at::Tensor decoded = coded_and_decoded(values, kind, type, 11);
  const at::Tensor zero = values == 0;
  if (type != at::kByte || kind == MomentKind::second) {
    EXPECT_TRUE(at::equal(decoded == 0, zero)) << "an update would divide by zero, or be none";
  }
  EXPECT_TRUE(at::equal(decoded.index({zero}), values.index({zero})));
  const at::Tensor apart = (used(decoded, kind) - used(values, kind)).abs();
  EXPECT_TRUE((apart <= 0.016 * block_sizes(used(values, kind))).all().item<bool>());
}

TEST_P(MomentCodes, DependOnKeyAndPlaceAlone) {
  const auto [type, kind] = GetParam();
  const at::Tensor values = example(kind).abs() + 1e-3;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = coded_and_decoded(values, kind, type, 5);
  at::set_num_threads(3);
  EXPECT_TRUE(at::equal(coded_and_decoded(values, kind, type, 5), one));
  at::set_num_threads(threads);
  EXPECT_FALSE(at::equal(coded_and_decoded(values, kind, type, 6), one));
}

INSTANTIATE_TEST_SUITE_P(All, MomentCodes,
                         testing::Combine(testing::Values(at::kByte, at::kBFloat16),
                                          testing::Values(MomentKind::first, MomentKind::second)));

// A moment that decays by less than half a code's step in each update still reaches a third.
TEST(MomentCodesOverUpdates, FollowASlowDecay) {
  for (const at::ScalarType type : {at::kByte, at::kBFloat16}) {
    at::Tensor values = at::ones({kMomentBlock});
    at::Tensor exact = values.clone();
    values[0] = exact[0] = 100;  // stays, so that the block's size does
    for (std::uint64_t update = 0; update < 1100; ++update) {
      for (at::Tensor* one : {&values, &exact}) one->narrow(0, 1, kMomentBlock - 1).mul_(0.999);
      values = coded_and_decoded(values, MomentKind::second, type, update);
    }
    const double mean = values.narrow(0, 1, kMomentBlock - 1).mean().item<double>();
    EXPECT_NEAR(mean, exact[1].item<double>(), 0.1 * exact[1].item<double>()) << at::toString(type);
  }
}

}  // namespace
}  // namespace strait::kernels::moment_codes_test
